// When the parts of a traced step happened, as its source sees it. A step that is not traced costs
// a comparison at each part. Part of a Step; memory is reused from step to step. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/tracing/step_tracer.h"
#include "core/tracing/trace_ids.h"

namespace switchyard {

class Step;

class StepTrace {
 public:
  // Before anything else of each step.
  void Begin(bool traced, TimePoint submitted) {
    traced_ = traced;
    submitted_ = submitted;
  }
  [[nodiscard]] bool traced() const { return traced_; }

  // The rest does nothing unless the step is traced. `chunk` counts within the step.
  void Planned(std::size_t chunks, TimePoint now) {
    if (!traced_) return;
    planned_ = now;
    answered_ = {};
    chunks_.assign(chunks, {});
  }
  void Encoding(std::uint32_t chunk, TimePoint now) {
    if (traced_) chunks_[chunk].encoding = now;
  }
  void Sent(std::uint32_t chunk, TimePoint now) {
    if (traced_) chunks_[chunk].sent = now;
  }
  void Answered(std::uint32_t chunk, TimePoint now) {
    if (traced_) chunks_[chunk].answered = answered_ = now;
  }
  // Writes down the step and each chunk that was begun.
  void End(const Step& step, const StepKey& key, TimePoint now, StepTracer* tracer) const;

 private:
  struct ChunkTimes {
    TimePoint encoding{};
    TimePoint sent{};
    TimePoint answered{};
  };

  bool traced_ = false;
  TimePoint submitted_{};
  TimePoint planned_{};
  TimePoint answered_{};  // the last chunk
  std::vector<ChunkTimes> chunks_;
};

}  // namespace switchyard
