#include "model/qwen3_moe_config.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/error.h"
#include "core/status_macros.h"

namespace switchyard {
namespace {

using IntRange = ConfigReader::IntRange;

// Far above any real model, and small enough that products of two stay inside 64 bits.
constexpr IntRange kSize{1, 1 << 24};
constexpr IntRange kCount{1, 65'536};
constexpr IntRange kLayers{1, 4'096};
constexpr IntRange kTokenId{0, INT32_MAX};

absl::Status ReadSizes(const ConfigReader& reader, ModelConfig& config) {
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"hidden_size"}, kSize), "hidden_size", config.hidden_size));
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"num_hidden_layers"}, kLayers), "num_hidden_layers", config.layers));
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"num_attention_heads"}, kCount), "num_attention_heads", config.heads));
  SY_RETURN_IF_ERROR(
      Optional(reader.Int({"mtp_num_hidden_layers", "num_nextn_predict_layers"}, {0, kLayers.max}),
               config.draft_layers));
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"num_key_value_heads"}, kCount), "num_key_value_heads", config.kv_heads));
  SY_RETURN_IF_ERROR(Require(reader.Int({"vocab_size"}, kSize), "vocab_size", config.vocab_size));
  SY_RETURN_IF_ERROR(Require(reader.Int({"max_position_embeddings"}, {1, INT32_MAX}),
                             "max_position_embeddings", config.max_position));
  // As transformers: a config without head_dim splits the hidden size among the heads.
  config.head_dim = config.hidden_size / config.heads;
  SY_RETURN_IF_ERROR(Optional(reader.Int({"head_dim"}, kSize), config.head_dim));
  if (config.heads % config.kv_heads != 0) {
    return BadConfig("num_key_value_heads",
                     absl::StrCat(config.kv_heads, " heads do not divide the ", config.heads,
                                  " of num_attention_heads"));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return BadConfig("head_dim",
                     absl::StrCat(config.head_dim, " is odd; rotary positions need pairs"));
  }
  return absl::OkStatus();
}

absl::Status ReadExperts(const ConfigReader& reader, ModelConfig& config) {
  SY_RETURN_IF_ERROR(Require(reader.Int({"num_experts", "num_local_experts"}, kCount),
                             "num_experts", config.experts));
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"num_experts_per_tok"}, kCount), "num_experts_per_tok", config.top_k));
  SY_RETURN_IF_ERROR(Require(reader.Int({"moe_intermediate_size"}, kSize), "moe_intermediate_size",
                             config.moe_intermediate));
  SY_RETURN_IF_ERROR(Optional(reader.Int({"intermediate_size"}, kSize), config.dense_intermediate));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"norm_topk_prob"}), config.norm_topk_prob));
  SY_RETURN_IF_ERROR(
      Optional(reader.Int({"decoder_sparse_step"}, kCount), config.decoder_sparse_step));
  SY_RETURN_IF_ERROR(
      Optional(reader.Ints({"mlp_only_layers"}, {0, config.layers - 1}), config.mlp_only_layers));
  if (config.top_k > config.experts) {
    return BadConfig("num_experts_per_tok",
                     absl::StrCat(config.top_k, " is more than the ", config.experts, " experts"));
  }
  if (std::int64_t{config.hidden_size} * config.moe_intermediate > kExpertTensorValuesMax) {
    return BadConfig(
        "moe_intermediate_size",
        absl::StrCat(config.moe_intermediate, " times hidden_size is more than the ",
                     kExpertTensorValuesMax, " values that an expert's tensor may have"));
  }
  const bool all_moe =
      MoeLayersOf(config).size() == static_cast<std::size_t>(config.layers + config.draft_layers);
  if (!all_moe && config.dense_intermediate == 0) {
    return BadConfig("intermediate_size", "it is missing, and some layers have no experts");
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const ConfigReader& reader, ModelConfig& config) {
  SY_RETURN_IF_ERROR(Require(reader.PositiveNumber({"rope_theta", "rope_parameters.rope_theta"}),
                             "rope_theta", config.rope_theta));
  SY_RETURN_IF_ERROR(Optional(
      reader.String({"rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"}),
      config.rope_type));
  return absl::OkStatus();
}

absl::Status ReadFlags(const ConfigReader& reader, ModelConfig& config) {
  config.rms_norm_eps = 1e-6;
  SY_RETURN_IF_ERROR(Optional(reader.PositiveNumber({"rms_norm_eps"}), config.rms_norm_eps));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"tie_word_embeddings"}), config.tie_word_embeddings));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"attention_bias"}), config.attention_bias));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"use_sliding_window"}), config.use_sliding_window));
  SY_RETURN_IF_ERROR(Optional(reader.String({"dtype", "torch_dtype"}), config.dtype));
  SY_RETURN_IF_ERROR(Optional(reader.Ints({"eos_token_id"}, kTokenId), config.eos_token_ids));
  std::string activation = "silu";
  SY_RETURN_IF_ERROR(Optional(reader.String({"hidden_act"}), activation));
  if (activation != "silu") {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("model config, key 'hidden_act': experts compute silu, not '",
                                  activation, "'"),
                     {{"key", "hidden_act"}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseQwen3MoeConfig(const ConfigReader& reader, ModelConfig& config) {
  SY_RETURN_IF_ERROR(ReadSizes(reader, config));
  SY_RETURN_IF_ERROR(ReadExperts(reader, config));
  SY_RETURN_IF_ERROR(ReadRope(reader, config));
  return ReadFlags(reader, config);
}

}  // namespace switchyard
