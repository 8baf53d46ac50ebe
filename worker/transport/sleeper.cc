#include "worker/transport/sleeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
absl::StatusOr<Sleeper::Ends> Sleeper::MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("transport: pipe2 failed with errno ", errno,
                                  "; raise the limit of open files (ulimit -n)"));
  }
  return Ends{Descriptor(ends[0]), Descriptor(ends[1])};
}

absl::StatusOr<std::unique_ptr<Sleeper>> Sleeper::Create(const WorkFds& work_fds,
                                                         Duration busy_poll) {
  SY_ASSIGN_OR_RETURN(Ends wake, MakePipe());
  SY_ASSIGN_OR_RETURN(Ends peer, MakePipe());
  // A peer opens it anew, and may be another user. Nobody else can reach a pipe without a name.
  ::fchmod(peer.in.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
  return std::unique_ptr<Sleeper>(
      new Sleeper(std::move(wake), std::move(peer), work_fds, busy_poll));
}

void Sleeper::Wake() {
  // First, so that an Arm() after this call looks into the pipe.
  woken_.store(true, std::memory_order_seq_cst);
  constexpr std::byte kWake{1};
  // The only possible failure is a full pipe. A full pipe is readable, so sleepers wake up.
  [[maybe_unused]] const auto written = ::write(wake_in_.get(), &kWake, sizeof(kWake));
}

bool Sleeper::TakeWakes() {
  if (!woken_.exchange(false, std::memory_order_seq_cst)) return false;
  // Bytes that do not fit stay in the pipe and end the sleep.
  std::array<std::byte, 256> bytes;
  return ::read(wake_out_.get(), bytes.data(), bytes.size()) > 0;
}

void Sleeper::TakePeerWakes() {
  if (!peer_woke_.exchange(false, std::memory_order_relaxed)) return;
  // Bytes that do not fit end the sleep, as above.
  std::array<std::byte, 256> bytes;
  [[maybe_unused]] const auto got = ::read(peer_out_.get(), bytes.data(), bytes.size());
}

// The pipe is the only record of a wake-up. A separate flag could not change at the same moment,
// and a thread that runs in between would miss the wake-up or never sleep; as a hint, set before
// the pipe is written and whenever it is found readable, it does no harm.
bool Sleeper::Arm() {
  // No other thread is armed, so none needs the wake-up: consume it.
  if (armed_.load(std::memory_order_acquire) == 0) {
    if (TakeWakes()) return false;
  } else {
    // Other threads are armed and must still see the wake-up, so only look at it.
    pollfd wake{wake_out_.get(), POLLIN, 0};
    if (::poll(&wake, 1, 0) > 0) return false;
  }
  // Also while others are armed: this thread looks at what the peers have to say.
  TakePeerWakes();
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

int Sleeper::Poll(Duration max) {
  // poll(2) ignores negative descriptors.
  std::array fds = {pollfd{wake_out_.get(), POLLIN, 0}, pollfd{peer_out_.get(), POLLIN, 0},
                    pollfd{work_fds_[0], POLLIN, 0}, pollfd{work_fds_[1], POLLIN, 0},
                    pollfd{work_fds_[2], POLLIN, 0}};
  const auto nanoseconds = std::max<Duration::rep>(max.count(), 0);
  timespec time{};
  time.tv_sec = nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  const int ready = ::ppoll(fds.data(), fds.size(), &time, nullptr);
  if (fds[0].revents != 0) woken_.store(true, std::memory_order_seq_cst);
  if (fds[1].revents != 0) peer_woke_.store(true, std::memory_order_relaxed);
  return ready > 0 ? 1 : ready;
}

void Sleeper::Wait(Duration max) {
  if (Poll(max) == 0) timed_out_.store(true, std::memory_order_relaxed);
  Disarm();
}

}  // namespace switchyard
