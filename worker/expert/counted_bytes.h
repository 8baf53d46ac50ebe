// Counts memory that is freed on whatever thread uses it last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace switchyard {

class CountedBytes {
 public:
  // Counted until the last copy of the result is gone, which may outlive this. Thread-safe.
  [[nodiscard]] std::shared_ptr<void> Add(std::uint64_t bytes) const {
    return std::make_shared<Share>(held_, bytes);
  }
  [[nodiscard]] std::uint64_t held() const { return held_->load(std::memory_order_relaxed); }

 private:
  using Total = std::shared_ptr<std::atomic<std::uint64_t>>;
  // Relaxed: a count alone, through which nothing is published.
  struct Share {
    Share(Total t, std::uint64_t b) : total(std::move(t)), bytes(b) {
      total->fetch_add(bytes, std::memory_order_relaxed);
    }
    ~Share() { total->fetch_sub(bytes, std::memory_order_relaxed); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    const Total total;
    const std::uint64_t bytes;
  };

  Total held_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace switchyard
