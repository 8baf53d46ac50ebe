#include "worker/device/host/host_event.h"

#include "worker/device/host/futex.h"

namespace switchyard {

bool HostEvent::Wait(Duration timeout) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    std::uint32_t seen = kOpen;
    state_.compare_exchange_strong(seen, kAwaited, std::memory_order_acquire);
    if (seen == kDone) return true;
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return done();
    // The word is compared inside the system call, so a completion in between is not missed.
    FutexWait(state_, kAwaited, std::chrono::duration_cast<Duration>(left));
  }
}

void HostEvent::Complete(absl::Status status) {
  status_ = std::move(status);
  // Release: after done() a reader sees status_ and all that the work wrote. The wake is a system
  // call for each chunk of each step, so it is left out where nobody sleeps. Only the word's
  // address is used after the exchange: whoever sees kDone may free the event.
  const bool awaited = state_.exchange(kDone, std::memory_order_acq_rel) == kAwaited;
  if (awaited) FutexWakeAll(state_);
}

}  // namespace switchyard
