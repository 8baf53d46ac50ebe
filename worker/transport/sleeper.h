// Sleeper: puts the threads of a transport to sleep and wakes them up.
//
//   Arm()  called with the owner's mutex held: true if this thread may sleep; false after a Wake()
//          that a thread has not noticed yet
//   Wait() called without the mutex: waits in poll(2) until there is a wake-up, its own or a
//          peer's, or one of the transport's own descriptors is readable, or the time is over
//
// A Wake() stays visible until every thread that was armed before it has left its Wait(); only the
// next Arm() clears it. Each Arm() that returns true must therefore be followed by one Wait() of
// the same thread, or one Disarm().
//
// Busy polling: for a while after the transport's last frame, BusyPolls() is true, and its owner
// looks again instead of arming. This saves the wake-up, and the peer's system call for it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/transport/descriptor.h"

namespace switchyard {

class Sleeper {
 public:
  using WorkFds = std::array<int, 3>;
  static constexpr WorkFds kNoWorkFds = {-1, -1, -1};

  // `work_fds`: descriptors that are readable when the transport has work; -1 if Wake() reports
  // work instead. Not owned. `busy_poll`: how long to poll after a frame; use 0 if threads may
  // outnumber cores. Errors: kResourceExhausted (OUT_OF_MEMORY) without a free file descriptor.
  static absl::StatusOr<std::unique_ptr<Sleeper>> Create(const WorkFds& work_fds,
                                                         Duration busy_poll);
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // See above. Both may be called by several threads at once.
  bool Arm();
  void Wait(Duration max);
  // Instead of Wait().
  void Disarm() { armed_.fetch_sub(1, std::memory_order_acq_rel); }
  // Ends current and upcoming sleeps. Callable from any thread, with or without the mutex.
  void Wake();
  // The end of a pipe for peers: a byte in it ends a sleep, and the next Arm() takes it without a
  // word, because what the peer has to say lies in memory by then, and the transport looks there
  // after each Arm(). Not the pipe of Wake(): who has this descriptor can change its flags, and
  // fill or drain the pipe. That spoils the wake-ups of peers and no Wake(), and blocks nobody.
  [[nodiscard]] int peer_wake() const { return peer_in_.get(); }
  // True while a thread is between an Arm() that returned true and the end of its Wait(). It cannot
  // become true while the caller holds the owner's mutex.
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire) > 0; }
  // `frames`: how many frames have come and gone so far. Called with the owner's mutex held.
  bool BusyPolls(std::uint64_t frames);
  // Replaces a work descriptor. Threads that sleep go on with the former one until they wake.
  void SetWorkFd(std::size_t index, int fd) { work_fds_[index].store(fd); }
  // True if a sleep has ended by its timeout since the last call.
  bool TakeTimeout() { return timed_out_.exchange(false, std::memory_order_relaxed); }

 private:
  // The ends of a pipe.
  struct Ends {
    Descriptor out;
    Descriptor in;
  };
  static absl::StatusOr<Ends> MakePipe();
  Sleeper(Ends wake, Ends peer, const WorkFds& work_fds, Duration busy_poll)
      : wake_out_(std::move(wake.out)),
        wake_in_(std::move(wake.in)),
        peer_out_(std::move(peer.out)),
        peer_in_(std::move(peer.in)),
        work_fds_{work_fds[0], work_fds[1], work_fds[2]},
        busy_poll_(busy_poll) {}
  // 1: a descriptor is readable; 0: timeout; -1: interrupted by a signal.
  int Poll(Duration max);
  // Both take what Poll may have found. TakeWakes is true if there was a wake-up.
  bool TakeWakes();
  void TakePeerWakes();

  const Descriptor wake_out_;  // the end of the pipe to read from
  const Descriptor wake_in_;   // the end to write to
  const Descriptor peer_out_;  // the same of the pipe of peers, who never get this end
  const Descriptor peer_in_;
  std::array<std::atomic<int>, std::tuple_size_v<WorkFds>> work_fds_;
  const Duration busy_poll_;
  std::uint64_t frames_ = 0;
  std::chrono::steady_clock::time_point poll_until_;
  std::atomic<int> armed_{0};  // threads between Arm() and the end of Wait()
  std::atomic<bool> timed_out_{false};
  // Hints that save system calls: what is false has nothing to take, or ends the next sleep.
  std::atomic<bool> woken_{false};
  std::atomic<bool> peer_woke_{false};
};

}  // namespace switchyard
