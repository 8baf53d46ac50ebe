// A stream of a device that computes in host memory.
//
// Small work runs inside the call that enqueues it, when nothing of the stream is queued: handing
// it to another thread and back costs more than the work. Larger runs go to the device's compute
// thread, so that a thread that polls rings is never away for long. The queue has one producer (the
// stream's caller) and one consumer (the compute thread) and takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>

#include "absl/status/status.h"

#include "worker/device/host/host_event.h"
#include "worker/device/host/host_kernels.h"
#include "worker/device/host/other_work.h"
#include "worker/device/host/step_parts.h"
#include "worker/device/stream.h"

namespace switchyard {

class ComputeThread;

// Up to this much a run counts as small, of whatever class: a session that does not name its phase
// has single tokens on the prefill stream, and two wakes would double their time. At 10 GB/s and
// 100 GFLOP/s, slow for a core, both are some 150 us.
struct InlineLimits {
  std::int64_t weight_bytes = std::int64_t{3} << 19;
  std::int64_t flops = std::int64_t{1} << 24;
  bool every_run = false;  // of every class and size: for simulations, which have one thread
};

class HostStream final : public Stream {
 public:
  // Calls beyond it get kResourceExhausted (NO_CREDITS).
  static constexpr std::uint32_t kQueuedMax = 64;

  // `kernels` and `compute` outlive the stream; `compute` may be null until the first Run.
  HostStream(HostKernels* kernels, const std::unique_ptr<ComputeThread>* compute,
             StreamOptions options, InlineLimits limits);
  ~HostStream() override;

  absl::Status Run(const ExpertRun& run) override;
  absl::Status Encode(const EncodeRun& run) override;
  absl::Status Sum(const SumRun& run) override;
  // A memcpy for each row: all memory is host memory.
  absl::Status Copy(std::span<const CopyPiece> pieces) override;
  // Always kUnimplemented: nobody else has streams of host memory.
  absl::Status WaitFor(void* foreign) override;
  absl::Status Precede(void* foreign) override { return WaitFor(foreign); }
  absl::Status Record(DeviceEvent* event) override;
  // A group's step, for the compute thread at any size: it waits for other ranks. `step.parts` is
  // valid until it has advanced to its end.
  absl::Status Queue(const QueuedStep& step) { return Queue(Work(step)); }
  [[nodiscard]] std::unique_ptr<DeviceEvent> MakeEvent() override;
  [[nodiscard]] std::uint32_t Room() const override;

  // For the compute thread.
  [[nodiscard]] WorkClass work_class() const { return options_.work_class; }
  [[nodiscard]] bool has_work() const {
    return tail_.load(std::memory_order_acquire) != head_.load(std::memory_order_acquire);
  }
  // has_work(), and the oldest piece does not wait for other devices.
  [[nodiscard]] bool ready() const;
  // Performs the oldest piece of work, or a part of it. `others` as in HostRun::Execute. REQUIRES:
  // ready().
  void PerformOldest(const OtherWork& others);

 private:
  using Work = std::variant<ExpertRun, EncodeRun, SumRun, std::span<const CopyPiece>, HostEvent*,
                            QueuedStep>;

  [[nodiscard]] bool idle() const { return !has_work(); }
  // True when a run costs less than handing it to another thread and back.
  [[nodiscard]] bool IsSmall(const ExpertRun& run) const;
  // Performs small work at once if nothing is queued; the order of the calls would break otherwise.
  absl::Status PerformOrQueue(Work work);
  // Never performs. Errors: kResourceExhausted (NO_CREDITS).
  absl::Status Queue(Work work);
  // On the caller's thread or on the compute thread. Not for steps.
  void Perform(Work& work, const OtherWork& others);

  HostKernels* const kernels_;
  const std::unique_ptr<ComputeThread>* const compute_;
  const StreamOptions options_;
  const InlineLimits limits_;
  bool registered_ = false;  // with the compute thread

  // The producer writes ring_[tail_ % size] and then tail_; the consumer reads ring_[head_ % size]
  // and moves head_ when the work is done, so an equal head and tail also say that none is running.
  std::array<Work, kQueuedMax> ring_;
  std::atomic<std::uint32_t> head_{0};  // the destructor sleeps on it
  std::atomic<std::uint32_t> tail_{0};
};

}  // namespace switchyard
