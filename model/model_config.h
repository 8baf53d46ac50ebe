// A model's config.json in one vocabulary for all families.
//
// It has two parts. The MoE layers are all that a deployment needs, and are read for every family
// of model/experts/moe_outline.h. The decoder around them is read only for the families whose
// decoder can be run (model/decoder_family.h). Both spellings of Hugging Face transformers are read
// (before and since version 5). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/moe_shape.h"

namespace switchyard {

// The parts around the MoE layers: attention, norms, vocabulary.
struct DecoderConfig {
  std::int32_t heads = 0;  // of queries; a multiple of kv_heads
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab_size = 0;
  std::int32_t max_position = 0;        // positions that the model was trained for
  std::int32_t dense_intermediate = 0;  // of the MLP of layers without experts
  bool norm_topk_prob = false;          // of the router

  double rope_theta = 0;
  std::string rope_type = "default";
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool use_sliding_window = false;
  std::vector<std::int32_t> eos_token_ids;  // may be empty

  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

// The MoE part of every model, and the decoder of those that examples can run.
struct ModelConfig {
  std::string model_type;    // "qwen3_moe"; "synthetic" for generated weights
  std::string architecture;  // "Qwen3MoeForCausalLM"; empty when the file has none
  std::string dtype;         // "bfloat16"; empty when the file has none

  std::int32_t hidden_size = 0;
  std::int32_t layers = 0;
  // MTP or nextn layers, which guess tokens ahead; their ids follow those of the others.
  std::int32_t draft_layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::int32_t moe_intermediate = 0;  // of one routed expert
  // The layers that have routed experts, ascending. Draft layers always have them.
  std::vector<LayerId> moe_layers;

  std::optional<DecoderConfig> decoder = {};  // unset: not read for this family

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads config.json's text. Values are checked for type, range and agreement with each other.
//
// Errors: kInvalidArgument (BAD_CONFIG), metadata {key}, for text that is not a JSON object, for a
// missing, mistyped or contradictory value; kUnimplemented (UNSUPPORTED) for an unknown
// model_type, with a list of the known ones, or a feature that cannot be served. The storage of the
// weights is read by model/quant/config/quant_config.h.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);

// The shape that all MoE layers of the model have.
MoeShape ShapeOf(const ModelConfig& config);
// The layers that have routed experts, ascending; draft layers come last.
std::vector<LayerId> MoeLayersOf(const ModelConfig& config);

}  // namespace switchyard
