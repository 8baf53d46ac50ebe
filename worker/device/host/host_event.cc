#include "worker/device/host/host_event.h"

#include "worker/device/host/futex.h"

namespace switchyard {

bool HostEvent::Wait(Duration timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return done();
    // The word is compared inside the system call, so a completion in between is not missed.
    FutexWait(state_, kOpen, std::chrono::duration_cast<Duration>(left));
  }
  return true;
}

void HostEvent::Complete(absl::Status status) {
  status_ = std::move(status);
  // Release: after done() a reader sees status_ and all that the work wrote. Nobody sleeps on an
  // event that was done, as where the work ended within its call, so the wake, a system call for
  // each chunk of each step, is left out there.
  if (state_.exchange(kDone, std::memory_order_acq_rel) == kOpen) FutexWakeAll(state_);
}

}  // namespace switchyard
