#include "worker/transport/sleeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

void EventFdTraits::Close(Handle handle) { ::close(handle); }

absl::StatusOr<std::unique_ptr<Sleeper>> Sleeper::Create(const WorkFds& work_fds,
                                                         Duration busy_poll) {
  EventFd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.valid()) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("transport: eventfd failed with errno ", errno,
                                  "; raise the limit of open files (ulimit -n)"));
  }
  return std::unique_ptr<Sleeper>(new Sleeper(std::move(wake_fd), work_fds, busy_poll));
}

void Sleeper::Wake() {
  const std::uint64_t one = 1;
  // The only possible failure is a full counter. A full counter is readable, so sleepers wake up.
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof(one));
}

// The descriptor is the only record of a wake-up. A separate flag could not change at the same
// moment, and a thread that runs in between would miss the wake-up or never sleep.
bool Sleeper::Arm() {
  // No other thread is armed, so none needs the wake-up: consume it.
  if (armed_.load(std::memory_order_acquire) == 0) {
    std::uint64_t count = 0;
    if (::read(wake_fd_.get(), &count, sizeof(count)) > 0) return false;
  } else {
    // Other threads are armed and must still see the wake-up, so only look at it.
    pollfd wake{wake_fd_.get(), POLLIN, 0};
    if (::poll(&wake, 1, 0) > 0) return false;
  }
  armed_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

bool Sleeper::BusyPolls(std::uint64_t frames) {
  if (busy_poll_ == Duration::zero()) return false;
  const auto now = std::chrono::steady_clock::now();
  if (frames != frames_) {
    frames_ = frames;
    poll_until_ = now + busy_poll_;
  }
  return now < poll_until_;
}

int Sleeper::Poll(Duration max) const {
  // poll(2) ignores negative descriptors.
  std::array<pollfd, 3> fds = {pollfd{wake_fd_.get(), POLLIN, 0}, pollfd{work_fds_[0], POLLIN, 0},
                               pollfd{work_fds_[1], POLLIN, 0}};
  const auto nanoseconds = std::max<Duration::rep>(max.count(), 0);
  timespec time{};
  time.tv_sec = nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  const int ready = ::ppoll(fds.data(), fds.size(), &time, nullptr);
  return ready > 0 ? 1 : ready;
}

void Sleeper::Wait(Duration max) {
  if (Poll(max) == 0) timed_out_.store(true, std::memory_order_relaxed);
  armed_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace switchyard
