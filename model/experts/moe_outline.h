// The MoE part of a model's config.json: sizes, which layers have experts, drafts.
//
// Reads a few keys of every family in model/experts/expert_names.h, which is enough to inspect a
// checkpoint. model/model_config.h builds on it to serve one, and refuses models that cannot be
// served.
//
// A family is one row of moe_outline.cc. Where a config has a text_config, the keys are read there.
// Sources: the config classes of transformers (deepseek_v3, qwen3_moe, qwen3_next, qwen3_5_moe,
// mixtral), the config.json of DeepSeek-V3 and Kimi-K2.5, and vLLM's and SGLang's readers of
// drafts. Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/moe_shape.h"

namespace switchyard {

// hidden * intermediate: far above any real expert, and small enough to allocate.
inline constexpr std::int64_t kExpertTensorValuesMax = std::int64_t{1} << 30;

// Enough to name every expert's tensors, and no more.
struct MoeOutline {
  std::string model_type;           // a model_type of expert_names.h
  MoeShape shape;                   // top_k 0: not in the config
  std::int32_t layers = 0;          // including those without experts, excluding drafts
  std::vector<LayerId> moe_layers;  // ascending
  std::int32_t drafts = 0;          // MTP or nextn layers that the config announces
  std::int32_t first_draft = 0;     // the first one's number: `layers`, or 0 in a list of their own
  std::string activation = "silu";  // between gate and up, as the config names it
  // The path of a config key that changes this function although its name stays; empty: none.
  std::string activation_changed_by;
};

// Errors: kUnimplemented (UNSUPPORTED), metadata {key}: a model_type without a row;
// kInvalidArgument (BAD_CONFIG), metadata {key}: not JSON, a key that is missing, mistyped or out
// of range, no layer with experts.
absl::StatusOr<MoeOutline> ParseMoeOutline(absl::string_view config_json);

}  // namespace switchyard
