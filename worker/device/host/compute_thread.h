// The thread on which a host device computes what its streams have queued.
//
// Decode streams go first, also within a longer run (HostRun::Execute); after sixteen pieces of
// decode work in a row one of another class gets its turn, so that prefill progresses under any
// load of decode steps.
//
// A stream whose oldest work waits for other devices (step_parts.h) is passed over until it is
// ready. Nothing wakes the thread for that: while it has no other work it looks again and again,
// ever more seldom, at least every millisecond.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "worker/device/host/host_stream.h"

namespace switchyard {

class ComputeThread {
 public:
  // Errors: kResourceExhausted (OUT_OF_MEMORY) when the system starts no more threads.
  static absl::StatusOr<std::unique_ptr<ComputeThread>> Create();
  // REQUIRES: all streams have been removed.
  ~ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

  // `stream` stays valid until it is removed. Not for hot paths: takes the lock.
  void Add(HostStream* stream);
  // Waits until the thread is not in the stream, which has no work left.
  void Remove(HostStream* stream);
  // Wakes the thread when it sleeps: there may be work. From any thread; takes no lock.
  void Notify();

 private:
  // A stream, and whether the thread is in it: Remove waits for that.
  struct Member {
    HostStream* stream = nullptr;
    bool running = false;
  };

  ComputeThread() = default;
  void Loop();
  // Runs one piece of work; false when there was none. `decode_only`: within another run.
  bool RunOne(bool decode_only);
  HostStream* Pick(bool decode_only);  // marks it as running
  bool DecodeWaits();
  bool AnyWork();
  bool AnyReady();
  // Until there may be work to do. `seen`: notified_ before the thread looked for work.
  void Idle(std::uint32_t seen);
  // Ends what Pick began.
  void PutBack(HostStream* stream);

  Mutex mutex_;                                        // held to pick, never while computing
  std::vector<Member> members_ SY_GUARDED_BY(mutex_);  // by class, then by age
  std::size_t last_ SY_GUARDED_BY(mutex_) = 0;         // which was picked last
  int decode_in_a_row_ = 0;                            // of the thread
  Duration nap_{};                                     // of the thread, while work waits

  std::atomic<std::uint32_t> notified_{0};  // futex: the thread sleeps on it
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard
