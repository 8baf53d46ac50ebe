// Builds the EpochRuntime of a PREPARE: everything that an epoch needs is loaded, verified, packed
// and allocated here, so that its commit can neither fail nor allocate.
//
// Experts that a resident epoch already holds are shared, known by the hashes of their tensors: a
// re-plan loads only what moved; epochs of one shape share their scratch memory. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/control_messages.h"
#include "core/ids.h"
#include "worker/device/device_backend.h"
#include "worker/expert/batch_memory.h"
#include "worker/expert/layer_runtime.h"
#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard {

// Opens a checkpoint whose tensors are verified as they are read.
using OpenWeights = std::function<absl::StatusOr<std::unique_ptr<WeightSource>>(
    absl::string_view checkpoint, WeightCheck check)>;

struct StagerOptions {
  std::string worker_id;
  Incarnation incarnation;
  DeviceBackend* device = nullptr;    // outlives all that is staged
  OpenWeights open_weights;           // MakeWeightSource; tests bring their own
  std::int64_t weight_bytes_max = 0;  // of all resident epochs together; 0: no bound
  // Experts that are loaded at once, each by a thread of its own. An expert on its way takes about
  // three times its bytes.
  int load_threads = 1;
  BatchOptions batch;
};

// The experts of this worker in all layers of the epoch.
struct StagingProgress {
  std::int32_t experts_done = 0;  // shared ones included
  std::int32_t experts_shared = 0;
  std::int32_t experts = 0;
  // They count the experts that are not shared, as held in memory.
  std::int64_t bytes_done = 0;
  std::int64_t bytes = 0;
};

// An epoch that is ready to be activated. Activating it neither allocates nor fails.
struct StagedEpoch {
  std::shared_ptr<const EpochRuntime> runtime;
  std::shared_ptr<EpochMemory> memory;
};

struct StageRequest {
  const Prepare* prepare = nullptr;
  // The epochs that this worker holds already, oldest first. Their experts are shared, and count as
  // memory in use.
  std::span<const std::shared_ptr<const EpochRuntime>> resident;
  std::stop_token stop;  // polled before each expert
  // May be empty; called once, as soon as it is known how much has to be loaded, before the
  // checkpoint is opened.
  std::function<void(const StagingProgress&)> on_begin = nullptr;
  std::function<void(const StagingProgress&)>
      on_progress;  // may be empty; after each expert, by any loading thread, one at a time
};

// The bytes of the distinct experts of all these epochs. Epochs share experts, so a sum over them
// would count twice. Linear in their slots.
std::int64_t ResidentBytes(std::span<const std::shared_ptr<const EpochRuntime>> resident);

class EpochStager {
 public:
  explicit EpochStager(StagerOptions options) : options_(std::move(options)) {}

  // Blocks while weights load, which takes from milliseconds (everything is shared) to minutes.
  // `prepare->hash` is taken to be that of its plan. Nothing is left behind after an error. Errors:
  //   kInvalidArgument (BAD_CONFIG)        the plan cannot be served
  //   kFailedPrecondition (INCARNATION)    the plan is for another life of this worker
  //   kUnimplemented (UNSUPPORTED)         a dtype or scheme that this worker lacks
  //   kDataLoss (WEIGHT_HASH, CHECKPOINT)  the stored weights differ; the text names the tensor
  //   kResourceExhausted (OUT_OF_MEMORY)   beyond weight_bytes_max, or the device has no room
  //   kCancelled (EPOCH_CHANGED)           `stop` was requested
  absl::StatusOr<StagedEpoch> Stage(const StageRequest& request);

 private:
  // Everything that can be refused without reading a weight.
  absl::Status CheckPlan(const Plan& plan) const;
  // Loads and packs the experts that have no weights yet, begun in the order of layers and slots.
  absl::Status LoadExperts(const StageRequest& request, EpochRuntime* runtime) const;
  // The memory of a held epoch of this shape, or a new one.
  absl::StatusOr<std::shared_ptr<EpochMemory>> MemoryFor(const MoeShape& shape);

  StagerOptions options_;
  std::vector<std::weak_ptr<EpochMemory>> memories_;  // of epochs that are still held
};

}  // namespace switchyard
