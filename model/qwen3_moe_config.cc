#include "model/qwen3_moe_config.h"

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"

namespace switchyard {
namespace {

using IntRange = ConfigReader::IntRange;

// Far above any real model, and small enough that products of two stay inside 64 bits.
constexpr IntRange kSize{1, 1 << 24};
constexpr IntRange kCount{1, 65'536};
constexpr IntRange kTokenId{0, INT32_MAX};

absl::Status ReadHeads(const ConfigReader& reader, std::int32_t hidden_size,
                       DecoderConfig& decoder) {
  SY_RETURN_IF_ERROR(
      Require(reader.Int({"num_attention_heads"}, kCount), "num_attention_heads", decoder.heads));
  SY_RETURN_IF_ERROR(Require(reader.Int({"num_key_value_heads"}, kCount), "num_key_value_heads",
                             decoder.kv_heads));
  // Like transformers: without head_dim, the heads share the hidden size.
  decoder.head_dim = hidden_size / decoder.heads;
  SY_RETURN_IF_ERROR(Optional(reader.Int({"head_dim"}, kSize), decoder.head_dim));
  if (decoder.heads % decoder.kv_heads != 0) {
    return BadConfig("num_key_value_heads",
                     absl::StrCat(decoder.kv_heads, " heads do not divide the ", decoder.heads,
                                  " of num_attention_heads"));
  }
  if (decoder.head_dim < 2 || decoder.head_dim % 2 != 0) {
    return BadConfig("head_dim",
                     absl::StrCat(decoder.head_dim, " is odd; rotary positions need pairs"));
  }
  return absl::OkStatus();
}

absl::Status ReadDenseLayers(const ConfigReader& reader, const ModelConfig& config,
                             DecoderConfig& decoder) {
  SY_RETURN_IF_ERROR(
      Optional(reader.Int({"intermediate_size"}, kSize), decoder.dense_intermediate));
  const bool all_moe = config.moe_layers.size() == static_cast<std::size_t>(config.layers);
  if (!all_moe && decoder.dense_intermediate == 0) {
    return BadConfig("intermediate_size", "it is missing, and some layers have no experts");
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const ConfigReader& reader, DecoderConfig& decoder) {
  SY_RETURN_IF_ERROR(Require(reader.PositiveNumber({"rope_theta", "rope_parameters.rope_theta"}),
                             "rope_theta", decoder.rope_theta));
  SY_RETURN_IF_ERROR(Optional(
      reader.String({"rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"}),
      decoder.rope_type));
  return absl::OkStatus();
}

absl::Status ReadFlags(const ConfigReader& reader, DecoderConfig& decoder) {
  decoder.rms_norm_eps = 1e-6;
  SY_RETURN_IF_ERROR(Optional(reader.PositiveNumber({"rms_norm_eps"}), decoder.rms_norm_eps));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"norm_topk_prob"}), decoder.norm_topk_prob));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"tie_word_embeddings"}), decoder.tie_word_embeddings));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"attention_bias"}), decoder.attention_bias));
  SY_RETURN_IF_ERROR(Optional(reader.Bool({"use_sliding_window"}), decoder.use_sliding_window));
  return Optional(reader.Ints({"eos_token_id"}, kTokenId), decoder.eos_token_ids);
}

}  // namespace

absl::StatusOr<DecoderConfig> ParseQwen3MoeDecoder(const ConfigReader& reader,
                                                   const ModelConfig& config) {
  DecoderConfig decoder;
  SY_RETURN_IF_ERROR(ReadHeads(reader, config.hidden_size, decoder));
  SY_RETURN_IF_ERROR(Require(reader.Int({"vocab_size"}, kSize), "vocab_size", decoder.vocab_size));
  SY_RETURN_IF_ERROR(Require(reader.Int({"max_position_embeddings"}, {1, INT32_MAX}),
                             "max_position_embeddings", decoder.max_position));
  SY_RETURN_IF_ERROR(ReadDenseLayers(reader, config, decoder));
  SY_RETURN_IF_ERROR(ReadRope(reader, decoder));
  SY_RETURN_IF_ERROR(ReadFlags(reader, decoder));
  return decoder;
}

}  // namespace switchyard
