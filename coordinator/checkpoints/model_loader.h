// Reads what planning needs of a checkpoint: sizes, layers, quant schemes and tensor hashes
// of a checkpoint folder or a synthetic model.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "model/expert_weights.h"

namespace switchyard {

// Reads a checkpoint's headers: its facts without the manifest. Called on a thread that may outlive
// the driver.
using ModelChecker = std::function<absl::StatusOr<ModelFacts>(const std::string& checkpoint)>;
// Reads a checkpoint. May take minutes, and calls `progress` meanwhile, from one thread at a time.
// Called on a thread that may outlive the driver (Driver::Shutdown).
using ModelLoader = std::function<absl::StatusOr<ModelFacts>(const std::string& checkpoint,
                                                             const ManifestProgress& progress)>;

// The product's. Cost: milliseconds on a local disk. Errors: as LoadModelFacts, except for weights
// that are damaged. Thread-safe.
absl::StatusOr<ModelFacts> CheckModelFacts(const std::string& checkpoint);
// The product's. `checkpoint` is a text in the form of model/model_spec.h. Cost: reads every byte
// of the routed experts once, and calls `progress` after each tensor or expert. Errors: those of
// ReadModelConfig and BuildManifest: (CHECKPOINT) naming file and tensor, kInvalidArgument
// (BAD_CONFIG), kUnimplemented (UNSUPPORTED); kCancelled when `progress` says so. Thread-safe.
absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint,
                                          const ManifestProgress& progress = nullptr);
// The same with several threads, of which each hashes at some 1 GB/s; for a folder, since weights
// of a synthetic model cost next to nothing.
ModelLoader LoaderWithThreads(int threads);

}  // namespace switchyard
