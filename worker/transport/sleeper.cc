#include "worker/transport/sleeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <poll.h>
#include <span>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<Sleeper>> Sleeper::Create(const WorkFds& work_fds,
                                                         Duration busy_poll) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("transport: pipe2 failed with errno ", errno,
                                  "; raise the limit of open files (ulimit -n)"));
  }
  return std::unique_ptr<Sleeper>(
      new Sleeper(Descriptor(ends[0]), Descriptor(ends[1]), work_fds, busy_poll));
}

void Sleeper::Wake() {
  constexpr std::byte kOwnWake{1};
  // The only possible failure is a full pipe. A full pipe is readable, so sleepers wake up.
  [[maybe_unused]] const auto written = ::write(wake_in_.get(), &kOwnWake, sizeof(kOwnWake));
}

// The pipe is the only record of a wake-up. A separate flag could not change at the same
// moment, and a thread that runs in between would miss the wake-up or never sleep.
bool Sleeper::Arm() {
  // No other thread is armed, so none needs the wake-up: consume it.
  if (armed_.load(std::memory_order_acquire) == 0) {
    // Bytes that do not fit stay in the pipe and end the sleep.
    std::array<std::byte, 256> bytes;
    const ssize_t got = ::read(wake_out_.get(), bytes.data(), bytes.size());
    const std::span taken(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (!std::ranges::all_of(taken, [](std::byte each) { return each == kPeerWake; })) return false;
  } else {
    // Other threads are armed and must still see the wake-up, so only look at it.
    pollfd wake{wake_out_.get(), POLLIN, 0};
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
  std::array<pollfd, 3> fds = {pollfd{wake_out_.get(), POLLIN, 0}, pollfd{work_fds_[0], POLLIN, 0},
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
  Disarm();
}

}  // namespace switchyard
