// The names of experts in the checkpoints of each model family.
//
// A family has one row or two: one for experts with tensors of their own
// ("...experts.7.gate_proj.weight") and, since version 5 of transformers, one for all experts of a
// layer in one tensor ("...experts.gate_up_proj"
// [experts, 2 * intermediate, hidden], gate first, and "...experts.down_proj" [experts, hidden,
// intermediate]). A checkpoint's tensors show which one it has. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/quant/config/layer_quant.h"
#include "model/safetensors/checkpoint_tensors.h"

namespace switchyard {

struct ExpertNameMap {
  const char* name;                        // for tables: "qwen3_5_moe", "qwen3_5_moe packed"
  std::array<const char*, 4> model_types;  // of config.json; nullptr for none
  const char* container;                   // "{layer}" stands for the number
  const char* draft_container;             // of draft (MTP, nextn) layers
  std::array<const char*, 3> projections;  // by Projection
  bool packed;
};

// Rows of one model_type are tried in order.
// Constant data, in the order of the table.
std::span<const ExpertNameMap> ExpertNameMaps();

// The layer whose experts are looked for.
struct ExpertLayer {
  std::string model_type;
  std::int32_t layer = 0;  // draft layers that have a list of their own ("mtp.layers") begin at 0
  bool draft = false;
  std::int32_t experts = 0;
};

// True when the draft layers of a model_type have a list of their own, which begins at 0; else they
// follow the others in one list.
bool DraftsCountApart(absl::string_view model_type);

// The modules as checkpoints usually name them: the family's first row. nullopt for a model_type
// without a row. Only for texts; FindExpertModules finds the names that a checkpoint has.
std::optional<ExpertModules> UsualExpertModules(const ExpertLayer& layer);

// The modules by the names that `tensors` has, with `stored_in_bf16` set from them.
// Errors: kUnimplemented (UNSUPPORTED), metadata {key}: a model_type without a row; kNotFound
// (CHECKPOINT, TENSOR_NOT_FOUND): the checkpoint has the names of no row; the text lists them.
absl::StatusOr<ExpertModules> FindExpertModules(const CheckpointTensors& tensors,
                                                const ExpertLayer& layer);

}  // namespace switchyard
