// Sleeper: how the threads of a transport sleep, and how they are woken.
//
//   Arm()  with the owner's mutex held: may this thread sleep? false after a Wake() that some
//          thread has yet to notice
//   Wait() without the mutex: poll(2) on the wake-up descriptor and the transport's own, until one
//          is readable or the time is over
//
// A Wake() stays visible until every thread that was armed before it has left its Wait(); only then
// does an Arm() clear it. So each Arm() that says true is followed by one Wait() of that thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/unique_handle.h"

namespace switchyard {

struct EventFdTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle handle);
};
using EventFd = UniqueHandle<EventFdTraits>;

class Sleeper {
 public:
  using WorkFds = std::array<int, 2>;
  static constexpr WorkFds kNoWorkFds = {-1, -1};

  // `work_fds`: readable when the transport has work, none when Wake() tells that too; not owned.
  // `spin`: how long Wait looks before it sleeps; 0 where threads may outnumber cores.
  // Errors: kResourceExhausted (OUT_OF_MEMORY): no file descriptor left.
  static absl::StatusOr<std::unique_ptr<Sleeper>> Create(const WorkFds& work_fds, Duration spin);
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  bool Arm();
  void Wait(Duration max);
  // From any thread.
  void Wake();
  // Whether a sleep ended by its time since the last call.
  bool TakeTimeout() { return timed_out_.exchange(false, std::memory_order_relaxed); }

 private:
  Sleeper(EventFd wake_fd, const WorkFds& work_fds, Duration spin)
      : wake_fd_(std::move(wake_fd)), work_fds_(work_fds), spin_(spin) {}
  // 1: something is readable; 0: time over; -1: interrupted.
  [[nodiscard]] int Poll(Duration max) const;

  const EventFd wake_fd_;
  const WorkFds work_fds_;
  const Duration spin_;
  std::atomic<int> armed_{0};  // threads between Arm() and the end of Wait()
  std::atomic<bool> timed_out_{false};
};

}  // namespace switchyard
