// The memory that the steps of all callers of a gateway may take together: their rows while they
// wait and run, and their results until they have been written to the callers. A message is at most
// 64 MiB, but a gateway has many callers with several steps each, and a caller need not read.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace switchyard {

// Thread-safe; never blocks.
class StepMemory {
 public:
  // With `whole` it is a part of that: what is taken here is taken there, too.
  explicit StepMemory(std::size_t bytes_max, std::shared_ptr<StepMemory> whole = nullptr)
      : whole_(std::move(whole)), bytes_max_(bytes_max) {}
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // A share is what one step has taken; its destructor gives it back. Thread-compatible.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() { ShrinkTo(0); }
    // Takes `bytes` more of `memory`, the same one in each call. False: they are not free, and
    // nothing was taken.
    bool Grow(StepMemory* memory, std::size_t bytes) {
      if (!memory->TryTake(bytes)) return false;
      memory_ = memory;
      bytes_ += bytes;
      return true;
    }
    // Gives back what is above `bytes`.
    void ShrinkTo(std::size_t bytes) {
      const std::size_t less = bytes_ - std::min(bytes, bytes_);
      bytes_ -= less;
      if (memory_ != nullptr) memory_->GiveBack(less);
    }

   private:
    StepMemory* memory_ = nullptr;
    std::size_t bytes_ = 0;
  };

  [[nodiscard]] std::size_t bytes_max() const { return bytes_max_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  // Whether so many bytes more are not free here, whatever is free in the whole.
  [[nodiscard]] bool Lacks(std::size_t bytes) const { return !Fits(bytes, used_); }
  // From now on. What is taken beyond it stays taken.
  void set_bytes_max(std::size_t bytes_max) { bytes_max_ = bytes_max; }

 private:
  [[nodiscard]] bool Fits(std::size_t bytes, std::size_t used) const {
    const std::size_t most = bytes_max_;
    return used <= most && bytes <= most - used;
  }
  bool TryTake(std::size_t bytes) {
    std::size_t used = used_;
    do {
      if (!Fits(bytes, used)) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    if (whole_ == nullptr || whole_->TryTake(bytes)) return true;
    used_ -= bytes;
    return false;
  }
  void GiveBack(std::size_t bytes) {
    used_ -= bytes;
    if (whole_ != nullptr) whole_->GiveBack(bytes);
  }

  const std::shared_ptr<StepMemory> whole_;
  std::atomic<std::size_t> bytes_max_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace switchyard
