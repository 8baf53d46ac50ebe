// Chooses the WeightSource for a checkpoint text. Each implementation has one line in
// weight_source_registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard {

// `checkpoint` is a text as in model/model_spec.h; `check` has the expected hashes. A PREPARE
// message carries both. Errors: those of ParseModelSpec and Checkpoint::Open.
absl::StatusOr<std::unique_ptr<WeightSource>> MakeWeightSource(absl::string_view checkpoint,
                                                               WeightCheck check);

// The names of all implementations ("safetensors", "synthetic"), for tables and the conformance
// suite, which runs over each of them.
std::vector<std::string> WeightSourceNames();

}  // namespace switchyard
