// A bounded queue of records from one thread that serves steps to the one that exports. Never
// waits and never allocates: what finds it full is counted and lost.
//
// One producer and one consumer at a time. Which threads these are may change, if the change is
// ordered by something else, such as a mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tracing/trace_record.h"

namespace switchyard {

class TraceRing {
 public:
  // About half a megabyte. At 1 % of 20 000 steps a second to eight workers it holds a second.
  static constexpr std::size_t kRecords = 2048;

  TraceRing() : records_(new TraceRecord[kRecords]) {}

  // False, and counted, when it is full.
  bool Push(const TraceRecord& record) {
    const std::uint64_t at = pushed_.load(std::memory_order_relaxed);
    if (at - popped_.load(std::memory_order_acquire) == kRecords) {
      // The only writer: no atomic addition is needed.
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return false;
    }
    records_[at % kRecords] = record;
    pushed_.store(at + 1, std::memory_order_release);
    return true;
  }

  // False when it is empty.
  bool Pop(TraceRecord* record) {
    const std::uint64_t at = popped_.load(std::memory_order_relaxed);
    if (at == pushed_.load(std::memory_order_acquire)) return false;
    *record = records_[at % kRecords];
    popped_.store(at + 1, std::memory_order_release);
    return true;
  }

  // Nothing is pushed any more.
  void Close() { closed_.store(true, std::memory_order_release); }
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool empty() const {
    return popped_.load(std::memory_order_acquire) == pushed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  // Apart, so that the two threads do not take a cache line from each other.
  alignas(64) std::atomic<std::uint64_t> pushed_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> closed_{false};
  alignas(64) std::atomic<std::uint64_t> popped_{0};
  const std::unique_ptr<TraceRecord[]> records_;
};

}  // namespace switchyard
