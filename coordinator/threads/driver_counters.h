// Counts the work of a driver since it was made. Thread-safe and never blocks, so that a health
// check can tell a driver that hangs from one that is idle.
#pragma once

#include <atomic>
#include <cstdint>

namespace switchyard {

struct DriverCounters {
  // The driver thread's loop makes at least one for each DriverOptions::tick.
  std::atomic<std::uint64_t> turns{0};
  std::atomic<std::uint64_t> store_writes{0};  // that succeeded
  std::atomic<std::uint64_t> store_writes_failed{0};
};

}  // namespace switchyard
