#include "worker/device/cuda/backend/completion_thread.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "worker/device/cuda/backend/cuda_stream.h"
#include "worker/device/cuda/backend/kept_context.h"
#include "worker/device/host/futex.h"

namespace switchyard {
namespace {

constexpr Duration kSleep = std::chrono::milliseconds(100);
constexpr Duration kNap = std::chrono::microseconds(50);
constexpr auto kSpin = std::chrono::milliseconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<CompletionThread>> CompletionThread::Create(int device,
                                                                           Duration busy_poll) {
  std::unique_ptr<CompletionThread> completion(new CompletionThread(device, busy_poll));
  try {
    completion->thread_ = std::thread([raw = completion.get()] { raw->Loop(); });
  } catch (const std::system_error&) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     "no thread for the events of a CUDA device; raise the limit of threads");
  }
  return completion;
}

CompletionThread::~CompletionThread() {
  stopping_.store(true);
  notified_.fetch_add(1);
  FutexWakeAll(notified_);
  if (thread_.joinable()) thread_.join();
}

void CompletionThread::Add(CudaStream* stream) {
  const MutexLock lock(mutex_);
  streams_.push_back(stream);
}

void CompletionThread::Remove(CudaStream* stream) {
  const MutexLock lock(mutex_);
  std::erase(streams_, stream);
}

// The sleeper says that it sleeps before it looks a last time, and the caller opens its event
// before it looks for a sleeper; in sequentially consistent order one of them sees the other.
void CompletionThread::Notify() {
  notified_.fetch_add(1);
  if (asleep_.load()) FutexWakeAll(notified_);
}

bool CompletionThread::LookAtAll(bool* moved) {
  const MutexLock lock(mutex_);
  bool open = false;
  for (CudaStream* stream : streams_) open = stream->CompleteEvents(moved) || open;
  return open;
}

void CompletionThread::Loop() {
  (void)cudaSetDevice(device_);
  const RelaxedCapture relaxed;  // an engine of this process may capture at any time
  auto last_moved = std::chrono::steady_clock::now();
  while (!stopping_.load()) {
    const std::uint32_t seen = notified_.load();
    bool moved = false;
    const bool open = LookAtAll(&moved);
    const auto now = std::chrono::steady_clock::now();
    if (moved) last_moved = now;
    if (open) {
      if (now - last_moved < kSpin) {
        SpinPause();
      } else {
        FutexWait(notified_, seen, kNap);
      }
      continue;
    }
    if (now - last_moved < busy_poll_) {
      SpinPause();
      continue;
    }
    asleep_.store(true);
    FutexWait(notified_, seen, kSleep);
    asleep_.store(false);
    last_moved = std::chrono::steady_clock::now();
  }
}

}  // namespace switchyard
