// Requests of one layer and mode on their way through a stream of the worker's device.
//
//   idle --Begin, Add...--> filling --Start--> running --done()--> Finish --> idle
//
// Several batches may be queued on one stream, also with one BatchMemory, because a stream runs
// them in order. One thread, except `done`, which any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "core/dispatch_config.h"
#include "core/format/bf16.h"
#include "worker/device/device_backend.h"
#include "worker/expert/batch_memory.h"
#include "worker/expert/layer_runtime.h"

namespace switchyard {

// The rows of one request. All memory stays valid until the batch is finished: the device reads it
// while the caller goes on.
struct BatchInput {
  const Codec* codec = nullptr;  // null: BF16
  const std::byte* rows = nullptr;
  const std::byte* scales = nullptr;
  std::uint32_t count = 0;
  const std::int32_t* slots = nullptr;  // as in ExpertInput
  const float* weights = nullptr;
  Bf16* out = nullptr;  // [count, hidden], host memory
};

// The properties that all requests of a batch share. Only requests with equal keys run together.
struct BatchKey {
  const LayerRuntime* layer = nullptr;  // one object of one epoch
  DispatchMode mode = DispatchMode::kNormal;
  ExpertAmax* amax = nullptr;  // [experts], raised by Finish; null: not recorded

  friend bool operator==(const BatchKey&, const BatchKey&) = default;
};

class ExpertBatch {
 public:
  // `stream` outlives the batch. `host_access`: its device's.
  ExpertBatch(Stream* stream, bool host_access);
  // Waits until the batch that runs has ended, because the device still reads the inputs.
  ~ExpertBatch();
  ExpertBatch(const ExpertBatch&) = delete;
  ExpertBatch& operator=(const ExpertBatch&) = delete;

  // Makes room for so many inputs, so that Add allocates nothing. Only while idle.
  void Reserve(std::size_t inputs);
  // Starts to fill the batch; only while idle. `runtime` holds key.layer. It and `memory` are kept
  // alive until Finish.
  void Begin(const BatchKey& key, std::shared_ptr<const EpochRuntime> runtime,
             std::shared_ptr<const BatchMemory> memory);
  // All inputs together have at most BatchMemory::rows_max rows, except a single larger request.
  void Add(const BatchInput& input);
  // Returns the mode of the last Begin.
  [[nodiscard]] DispatchMode mode() const { return key_.mode; }
  // Rows added since Begin.
  [[nodiscard]] std::uint32_t rows() const { return rows_; }
  // Enqueues the batch and returns at once. Errors: those of Stream; the batch is idle then, and
  // the device uses nothing of it. Only a refusal after rows were enqueued waits for those.
  absl::Status Start();
  // True from Start until Finish, also when the device is done.
  [[nodiscard]] bool running() const { return running_; }
  // True once the answers stand in each input's `out`, or the batch has failed.
  [[nodiscard]] bool done() const { return event_->done(); }
  // Blocks for at most `timeout`; false when the batch still runs. The engine polls instead.
  bool Wait(Duration timeout) { return event_->Wait(timeout); }
  // Ends the batch and returns its result. REQUIRES: done(). Errors: those of the device, for every
  // request of the batch alike.
  absl::Status Finish();
  // nan_rows are valid after Finish, until the next Begin.
  [[nodiscard]] std::span<const ExpertInput> inputs() const { return inputs_; }
  // The epoch that the batch keeps alive; nullptr while idle.
  [[nodiscard]] const EpochRuntime* runtime() const { return runtime_.get(); }

 private:
  // Points the inputs at device memory and lists the copies. Only without host access.
  void PlaceOnDevice();
  // Waits until the recorded work has ended.
  void Drain();
  // Releases the runtime and the memory.
  void Clear();

  Stream* const stream_;
  const bool host_access_;
  std::unique_ptr<DeviceEvent> event_;
  bool running_ = false;
  std::uint32_t rows_ = 0;
  ExpertRun run_;
  BatchKey key_;
  std::shared_ptr<const EpochRuntime> runtime_;
  std::shared_ptr<const BatchMemory> memory_;
  // Reused from batch to batch.
  std::vector<ExpertInput> inputs_;
  // Magnitudes go through memory of the batch, because those of the session may be read meanwhile.
  std::vector<ExpertAmax> amax_;
  // For a device without host access: what is copied before the run, and after it.
  std::vector<CopyPiece> copies_in_;
  std::vector<CopyPiece> copies_out_;
};

}  // namespace switchyard
