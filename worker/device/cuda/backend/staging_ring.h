// Pinned memory that the work of one stream passes through: given out in the order of the calls,
// taken back in the same order when events complete.
//
// One thread allocates, another releases.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "worker/device/cuda/backend/cuda_memory.h"

namespace switchyard {

class StagingRing {
 public:
  explicit StagingRing(CudaMemory memory) : memory_(std::move(memory)) {}

  // 256-byte aligned, in one piece; null when there is no room until something is released.
  std::byte* Allocate(std::size_t bytes) {
    const std::uint64_t size = capacity();
    const std::uint64_t want = (bytes + kUnit - 1) / kUnit * kUnit;
    std::uint64_t begin = tail_;
    if (begin % size + want > size) begin += size - begin % size;  // the rest is left empty
    if (begin + want - head_.load(std::memory_order_acquire) > size) return nullptr;
    tail_ = begin + want;
    return memory_.data() + begin % size;
  }
  // Everything allocated so far, for Release.
  [[nodiscard]] std::uint64_t position() const { return tail_; }
  // Nothing allocated before `position` is in use any more. Ascending.
  void Release(std::uint64_t position) { head_.store(position, std::memory_order_release); }

  [[nodiscard]] std::size_t capacity() const {
    return static_cast<std::size_t>(memory_.bytes()) / kUnit * kUnit;
  }
  [[nodiscard]] std::size_t free() const {
    return capacity() - static_cast<std::size_t>(tail_ - head_.load(std::memory_order_acquire));
  }
  CudaMemory TakeMemory() { return std::move(memory_); }

 private:
  static constexpr std::size_t kUnit = 256;

  CudaMemory memory_;
  std::uint64_t tail_ = 0;  // of the thread that allocates
  std::atomic<std::uint64_t> head_{0};
};

// Memory for the rings of streams to come: pinning it takes tens of milliseconds, so that of
// streams that are gone is kept. Thread-safe.
class StagingPool {
 public:
  // Two batches of 1024 rows of 8192 BF16 values on their way in and out, with room to spare.
  static constexpr std::int64_t kBytes = std::int64_t{96} << 20;

  explicit StagingPool(CudaFault* fault) : fault_(fault) {}
  // `bytes`: 0 for those of most streams. Errors: kResourceExhausted (OUT_OF_MEMORY); the fault.
  absl::StatusOr<CudaMemory> Take(std::size_t bytes) {
    const std::int64_t wanted = bytes == 0 ? kBytes : static_cast<std::int64_t>(bytes);
    if (wanted == kBytes) {
      const MutexLock lock(mutex_);
      if (!spares_.empty()) {
        CudaMemory memory = std::move(spares_.back());
        spares_.pop_back();
        return memory;
      }
    }
    return CudaMemory::Pinned(wanted, *fault_, "the staging memory of a stream");
  }
  void Give(CudaMemory memory) {
    const MutexLock lock(mutex_);
    if (memory.bytes() == kBytes && spares_.size() < kSparesMax)
      spares_.push_back(std::move(memory));
  }

 private:
  static constexpr std::size_t kSparesMax = 4;

  CudaFault* const fault_;
  Mutex mutex_;
  std::vector<CudaMemory> spares_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
