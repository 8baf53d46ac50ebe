// A stream of a CUDA device.
//
// Calls enqueue copies and kernels on a cudaStream_t and return. Lists of a run, and rows that lie
// in pageable host memory, pass through pinned memory of the stream: on the way in they are copied
// by the call, on the way out by the completion thread before the event is done. The device itself
// reads and writes large pieces of pinned or mapped host memory; small ones are collected like
// pageable ones.
//
// Host memory that a copy writes is written when the event is done: later copies of the stream from
// there need an event between.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/completion_thread.h"
#include "worker/device/cuda/backend/cuda_event.h"
#include "worker/device/cuda/backend/cuda_fault.h"
#include "worker/device/cuda/backend/expert_passes.h"
#include "worker/device/cuda/backend/kept_context.h"
#include "worker/device/cuda/backend/staging_ring.h"
#include "worker/device/stream.h"

namespace switchyard {

// The streams of one device share this. It outlives them.
struct CudaShared {
  CudaShared(int index, Logger* log) : device(index), fault(index, log), staging(&fault) {}

  const int device;
  const ContextCalls contexts = FindContextCalls();
  CudaFault fault;
  StagingPool staging;
  std::unique_ptr<CompletionThread> completion;
};

class CudaStream final : public Stream {
 public:
  static constexpr std::uint32_t kOpenMax = 256;       // events
  static constexpr std::uint32_t kLeftoverMax = 8192;  // pieces of work for the host

  // The stream is of the current device. Errors: kResourceExhausted (OUT_OF_MEMORY); the fault.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(CudaShared* shared,
                                                            StreamOptions options);
  ~CudaStream() override;

  absl::Status Run(const ExpertRun& run) override;
  absl::Status Encode(const EncodeRun& run) override;
  absl::Status Sum(const SumRun& run) override;
  absl::Status Copy(std::span<const CopyPiece> pieces) override;
  absl::Status WaitFor(void* foreign) override;
  absl::Status Precede(void* foreign) override;
  absl::Status Record(DeviceEvent* event) override;
  [[nodiscard]] std::unique_ptr<DeviceEvent> MakeEvent() override;

  // Work of another part of the backend, in order with the stream's own. `work` enqueues it and
  // waits for nothing. Errors: the fault; those of `work`.
  absl::Status Enqueue(absl::FunctionRef<absl::Status(cudaStream_t)> work);

  // For the completion thread: completes what has ended. True while events are open.
  bool CompleteEvents(bool* moved);

 private:
  // Work that is left for the host when the device has done its part.
  struct Leftover {
    CopyPiece copy{};  // where bytes > 0
    std::span<ExpertInput> inputs{};
    RunResults results{};
    const CudaTable* table = nullptr;
    ExpertAmax* amax = nullptr;
  };
  struct OpenEvent {
    CudaEvent* event = nullptr;
    std::uint32_t leftovers = 0;  // those before this one
    std::uint64_t staging = 0;    // its position
    TimePoint opened{};
  };
  enum class Direction : std::uint8_t { kDirect, kIn, kOut, kHost };

  CudaStream(CudaShared* shared, StreamOptions options, CudaMemory staging)
      : shared_(shared), options_(std::move(options)), ring_(std::move(staging)) {}

  absl::Status Begin();
  absl::Status CheckNotCaptured(cudaStream_t foreign);
  // Says what is wrong with a stream of others, after a call on it that gave `error`.
  absl::Status CheckForeign(cudaError_t error);
  // Pieces of host memory that the device reaches are collected if they are below `large` bytes.
  [[nodiscard]] absl::StatusOr<Direction> DirectionOf(const CopyPiece& piece,
                                                      std::size_t large) const;
  [[nodiscard]] absl::StatusOr<std::size_t> StagedBytes(std::span<const CopyPiece> pieces,
                                                        std::size_t large) const;
  absl::StatusOr<std::byte*> Stage(std::size_t bytes);
  absl::Status CheckLeftovers(std::size_t count) const;
  void Leave(const Leftover& leftover);
  // Pieces that are neighbors on the device travel as one.
  absl::Status CopyStaged(std::span<const CopyPiece> pieces, Direction direction);
  void Finish(const Leftover& leftover);
  void CompleteOldest(const OpenEvent& open);

  CudaShared* const shared_;
  const StreamOptions options_;
  cudaStream_t raw_ = nullptr;
  cudaEvent_t foreign_ = nullptr;  // the last state of another stream that this one waits for
  StagingRing ring_;

  // One producer, the stream's caller; one consumer, the completion thread.
  std::array<Leftover, kLeftoverMax> leftovers_{};
  std::atomic<std::uint32_t> leftover_head_{0};
  std::uint32_t leftover_tail_ = 0;  // published by open_tail_
  std::array<OpenEvent, kOpenMax> open_{};
  std::atomic<std::uint32_t> open_head_{0};
  std::atomic<std::uint32_t> open_tail_{0};
};

}  // namespace switchyard
