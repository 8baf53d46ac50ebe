// Decides which steps are traced, and takes what is written down about them. Where tracing is off,
// a step costs one comparison.
//
// Each belongs to one thread at a time, which calls Samples and Push; SetRatio comes from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/tracing/trace_ids.h"
#include "core/tracing/trace_record.h"
#include "core/tracing/trace_ring.h"

namespace switchyard {

class StepTracer {
 public:
  // Traces nothing, for good.
  StepTracer() = default;
  // Traces into `ring`; nothing until SetRatio.
  explicit StepTracer(std::shared_ptr<TraceRing> ring) : ring_(std::move(ring)) {}
  ~StepTracer() {
    if (ring_ != nullptr) ring_->Close();
  }
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  // Thread-safe. Ignored without a ring.
  void SetRatio(double ratio) {
    if (ring_ != nullptr) bound_.store(SampleBound(ratio), std::memory_order_relaxed);
  }

  [[nodiscard]] bool Samples(const StepKey& key) const {
    const std::uint64_t bound = bound_.load(std::memory_order_relaxed);
    return bound != 0 && SampleHash(key) <= bound;
  }
  // For a step that Samples.
  void Push(const TraceRecord& record) {
    if (ring_ != nullptr) ring_->Push(record);
  }

 private:
  const std::shared_ptr<TraceRing> ring_;
  std::atomic<std::uint64_t> bound_{0};
};

}  // namespace switchyard
