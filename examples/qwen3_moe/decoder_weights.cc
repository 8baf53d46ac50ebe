#include "examples/qwen3_moe/decoder_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "examples/qwen3_moe/tensor_reader.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr char kModelType[] = "qwen3_moe";

// The experts of such a model may still be served; only this decoder cannot run the rest of it.
absl::Status OtherModel(const std::string& model_type) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("the Qwen3-MoE decoder only runs checkpoints of model_type '",
                                kModelType, "', but this one has '", model_type,
                                "'; deploy its experts (syctl apply) and call them from your own "
                                "engine through the client (client/switchyard.h)"),
                   {{"model_type", model_type}});
}

absl::Status Unsupported(absl::string_view what) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("the Qwen3-MoE decoder cannot run this model: ", what,
                                "; use another checkpoint"));
}

// Tensor names as in Hugging Face checkpoints of this model type.
absl::StatusOr<LayerWeights> LoadLayer(TensorReader& reader, const DecoderDims& dims,
                                       std::size_t layer) {
  const std::string base = absl::StrCat("model.layers.", layer, ".");
  const std::size_t query_width = dims.heads * dims.head_dim;
  const std::size_t kv_width = dims.kv_heads * dims.head_dim;
  LayerWeights w;
  SY_ASSIGN_OR_RETURN(w.input_norm, reader.Vector(base + "input_layernorm.weight", dims.hidden));
  SY_ASSIGN_OR_RETURN(w.query,
                      reader.Packed(base + "self_attn.q_proj.weight", query_width, dims.hidden));
  SY_ASSIGN_OR_RETURN(w.key,
                      reader.Packed(base + "self_attn.k_proj.weight", kv_width, dims.hidden));
  SY_ASSIGN_OR_RETURN(w.value,
                      reader.Packed(base + "self_attn.v_proj.weight", kv_width, dims.hidden));
  SY_ASSIGN_OR_RETURN(w.output,
                      reader.Packed(base + "self_attn.o_proj.weight", dims.hidden, query_width));
  SY_ASSIGN_OR_RETURN(w.query_norm, reader.Vector(base + "self_attn.q_norm.weight", dims.head_dim));
  SY_ASSIGN_OR_RETURN(w.key_norm, reader.Vector(base + "self_attn.k_norm.weight", dims.head_dim));
  SY_ASSIGN_OR_RETURN(w.moe_norm,
                      reader.Vector(base + "post_attention_layernorm.weight", dims.hidden));
  SY_ASSIGN_OR_RETURN(PackedMatrix gate,
                      reader.Packed(base + "mlp.gate.weight", dims.experts, dims.hidden));
  w.router = Router(std::move(gate), {.top_k = dims.top_k, .normalize = dims.normalize_top_k});
  return w;
}

}  // namespace

absl::StatusOr<DecoderDims> DimsOf(const ModelConfig& config) {
  if (config.model_type != kModelType || !config.decoder.has_value()) {
    return OtherModel(config.model_type);
  }
  const DecoderConfig& decoder = *config.decoder;
  // Drafts are counted as layers of experts but are not part of the decoder.
  if (MoeLayersOf(config).size() != static_cast<std::size_t>(config.layers + config.draft_layers)) {
    return Unsupported("some layers are dense (mlp_only_layers, decoder_sparse_step)");
  }
  if (decoder.attention_bias) return Unsupported("attention_bias is true");
  if (decoder.use_sliding_window) return Unsupported("use_sliding_window is true");
  // A rope_type other than "default" scales the frequencies, and a wrong scale degrades the text
  // without an error.
  if (decoder.rope_type != "default") {
    return Unsupported(absl::StrCat("rope_type is \"", decoder.rope_type, "\""));
  }
  const auto size = [](std::int32_t value) { return static_cast<std::size_t>(value); };
  return DecoderDims{.layers = size(config.layers),
                     .hidden = size(config.hidden_size),
                     .heads = size(decoder.heads),
                     .kv_heads = size(decoder.kv_heads),
                     .head_dim = size(decoder.head_dim),
                     .vocab = size(decoder.vocab_size),
                     .experts = size(config.experts),
                     .top_k = size(config.top_k),
                     .moe_intermediate = size(config.moe_intermediate),
                     .max_positions = size(decoder.max_position),
                     .rms_norm_eps = static_cast<float>(decoder.rms_norm_eps),
                     .rope_theta = decoder.rope_theta,
                     .normalize_top_k = decoder.norm_topk_prob,
                     .tied_embeddings = decoder.tie_word_embeddings};
}

absl::StatusOr<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint,
                                                  const DecoderDims& dims) {
  TensorReader reader(checkpoint);
  DecoderWeights weights;
  SY_ASSIGN_OR_RETURN(weights.embedding,
                      reader.Matrix("model.embed_tokens.weight", dims.vocab, dims.hidden));
  for (std::size_t layer = 0; layer < dims.layers; ++layer) {
    SY_ASSIGN_OR_RETURN(LayerWeights loaded, LoadLayer(reader, dims, layer));
    weights.layers.push_back(std::move(loaded));
  }
  SY_ASSIGN_OR_RETURN(weights.final_norm, reader.Vector("model.norm.weight", dims.hidden));
  // The embedding is row-major for lookups, the head is packed for products: a tied one is stored
  // twice.
  if (dims.tied_embeddings) {
    weights.head = PackedMatrix::Pack(weights.embedding, dims.vocab, dims.hidden);
  } else {
    SY_ASSIGN_OR_RETURN(weights.head, reader.Packed("lm_head.weight", dims.vocab, dims.hidden));
  }
  weights.names = reader.names();
  return weights;
}

}  // namespace switchyard::qwen3_moe
