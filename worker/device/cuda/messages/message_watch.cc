#include "worker/device/cuda/messages/message_watch.h"

#include <atomic>
#include <chrono>
#include <system_error>

#include <cuda_runtime_api.h>

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<MessageWatch>> MessageWatch::Start(const Options& options) {
  std::unique_ptr<MessageWatch> watch(new MessageWatch(options));
  try {
    watch->thread_ = std::thread([raw = watch.get()] { raw->Loop(); });
  } catch (const std::system_error&) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     "no thread for the messages of a group of GPUs; raise the limit of threads");
  }
  return watch;
}

MessageWatch::~MessageWatch() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void MessageWatch::Lose(int rank) {
  {
    const MutexLock lock(mutex_);
    if (lost_ == 0) lost_ = 1U << rank & options_.others;
  }
  changed_.NotifyAll();
}

void MessageWatch::GiveUp(const Options& options, std::uint32_t suspects) {
  std::atomic_ref<std::uint32_t>(options.report->suspects).fetch_or(suspects);
  std::atomic_ref<std::uint32_t>(options.report->gone).store(options.others);
}

bool MessageWatch::IsOver(TimePoint now) {
  const std::atomic_ref<std::uint32_t> begun(options_.report->begun);
  const std::atomic_ref<std::uint32_t> arrived(options_.report->arrived);
  const std::uint32_t last = arrived.load(std::memory_order_acquire);
  const std::uint32_t next = begun.load(std::memory_order_acquire);
  if (next == last || next != begun_) {
    begun_ = next;
    since_ = now;
    return false;
  }
  return now - since_ >= (last == 0 ? options_.first_patience : options_.patience);
}

void MessageWatch::Fail() {
  {
    const MutexLock lock(mutex_);
    failed_ = true;
  }
  changed_.NotifyAll();
}

bool MessageWatch::WaitForEnd() {
  const MutexLock lock(mutex_);
  if (!stopping_ && !failed_ && lost_ == 0) {
    changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kLook);
  }
  return stopping_ || failed_ || lost_ != 0;
}

void MessageWatch::Loop() {
  (void)cudaSetDevice(options_.device);
  // An engine of this process may capture a graph at any time, which no call here shall end.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  while (!WaitForEnd() && !IsOver(std::chrono::steady_clock::now())) {
  }
  std::uint32_t lost = 0;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    lost = lost_;
  }
  // Before the waits end: what comes after them must know that messages may be there in part.
  GiveUp(options_, lost);
  options_.group->Abort();
}

}  // namespace switchyard
