// Counts the steps that a gateway makes for its callers, since the process started. Thread-safe;
// written by the threads of sessions, read by a scrape.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/histogram.h"
#include "core/dispatch_mode.h"
#include "worker/expert/expert_times.h"

namespace switchyard {

class GatewayCounts {
 public:
  // From the arrival of a caller's message until its result is handed to gRPC.
  Histogram& StepOf(WorkClass work_class, DispatchMode mode) {
    return steps_[IndexOf(work_class, mode)];
  }
  [[nodiscard]] const Histogram& StepOf(WorkClass work_class, DispatchMode mode) const {
    return steps_[IndexOf(work_class, mode)];
  }

  // Relaxed everywhere: nothing else is published through them.
  std::atomic<std::uint64_t> results{0};
  std::atomic<std::uint64_t> tokens{0};  // of those
  std::atomic<std::uint64_t> errors{0};  // steps that were answered with one

 private:
  static std::size_t IndexOf(WorkClass work_class, DispatchMode mode) {
    return static_cast<std::size_t>(work_class) * kDispatchModes + static_cast<std::size_t>(mode);
  }
  std::array<Histogram, kWorkClasses * kDispatchModes> steps_;
};

}  // namespace switchyard
