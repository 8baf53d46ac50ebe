// An event of a stream that computes in host memory: a word that the stream writes and any thread
// reads or sleeps on.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"

#include "worker/device/stream.h"

namespace switchyard {

class HostEvent final : public DeviceEvent {
 public:
  [[nodiscard]] bool done() const override {
    // Pairs with the release in Complete: what the work wrote is visible after a true.
    return state_.load(std::memory_order_acquire) == kDone;
  }
  // No lock: status_ is written before the release that makes done() true, and callers have seen
  // it.
  [[nodiscard]] absl::Status status() const override { return status_; }
  // A futex wait on state_; returns at once when the event is done.
  bool Wait(Duration timeout) override;

  // Called by the stream: before the event is queued, and when its work has ended. The end costs a
  // call of the kernel only where a thread sleeps in Wait.
  void Open() { state_.store(kOpen, std::memory_order_relaxed); }
  void Complete(absl::Status status);

 private:
  static constexpr std::uint32_t kOpen = 0;
  static constexpr std::uint32_t kDone = 1;
  static constexpr std::uint32_t kAwaited = 2;  // open, and a thread may sleep on it

  // Done at first: an event that was never queued has nothing to wait for.
  std::atomic<std::uint32_t> state_{kDone};
  absl::Status status_;  // written before state_ becomes kDone
};

}  // namespace switchyard
