// The thread that looks after the open events of a CUDA device: it asks the runtime whether they
// are complete, does what is left to do on the host, and completes them. After a fault it fails
// them, so nothing waits for a lost device.
//
// It spins while an event is young, and naps between looks at an old one. While no event is open it
// sleeps, or looks on for `busy_poll` after the last one, which saves the way out of that sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

class CudaStream;

class CompletionThread {
 public:
  // Errors: kResourceExhausted (OUT_OF_MEMORY) when the system starts no more threads.
  static absl::StatusOr<std::unique_ptr<CompletionThread>> Create(int device, Duration busy_poll);
  // All streams have been removed.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  void Add(CudaStream* stream);
  // Waits until the thread is not in the stream, which has no open events.
  void Remove(CudaStream* stream);
  // An event has been opened. From any thread; takes no lock.
  void Notify();

 private:
  CompletionThread(int device, Duration busy_poll) : device_(device), busy_poll_(busy_poll) {}
  void Loop();
  // True when some stream has open events; sets `moved` when an event was completed.
  bool LookAtAll(bool* moved);

  const int device_;
  const Duration busy_poll_;
  Mutex mutex_;  // held while the thread is in the streams
  std::vector<CudaStream*> streams_ SY_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> notified_{0};  // futex: the thread sleeps on it
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard
