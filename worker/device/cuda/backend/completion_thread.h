// The thread that looks after the open events of a CUDA device: it asks the runtime whether they
// are complete, does what is left to do on the host, and completes them. After a fault it fails
// them, so nothing waits for a lost device.
//
// It sleeps while no event is open, spins while one is young, and naps between looks at an old one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"

namespace switchyard {

class CudaStream;

class CompletionThread {
 public:
  // Errors: kResourceExhausted (OUT_OF_MEMORY) when the system starts no more threads.
  static absl::StatusOr<std::unique_ptr<CompletionThread>> Create(int device);
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
  explicit CompletionThread(int device) : device_(device) {}
  void Loop();
  // True when some stream has open events; sets `moved` when an event was completed.
  bool LookAtAll(bool* moved);

  const int device_;
  Mutex mutex_;  // held while the thread is in the streams
  std::vector<CudaStream*> streams_ SY_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> notified_{0};  // futex: the thread sleeps on it
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard
