// Which WeightSource serves which checkpoint text: one line each in weight_source_registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard {

// `checkpoint` is the text of model/model_spec.h, as PREPARE brings it; `check` holds the hashes
// that came with it. Errors: those of ParseModelSpec and Checkpoint::Open.
absl::StatusOr<std::unique_ptr<WeightSource>> MakeWeightSource(absl::string_view checkpoint,
                                                               WeightCheck check);

// "safetensors", "synthetic": for tables and the conformance suite.
std::vector<std::string> WeightSourceNames();

}  // namespace switchyard
