// When the parts of a traced step in lockstep happened, as its source sees it. The devices write
// nothing down: between the stream and the end lie the work before the step, the wait for the other
// ranks, and the exchange. A step that is not traced costs a comparison at each part. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/dispatch_mode.h"
#include "core/ids.h"
#include "core/tracing/step_tracer.h"
#include "core/tracing/trace_ids.h"
#include "core/tracing/trace_record.h"

namespace switchyard {

class LockstepTrace {
 public:
  // Before anything else of each step; `tracer` outlives it. Null: the step is not traced.
  void Begin(StepTracer* tracer, const StepKey& key, TimePoint submitted) {
    tracer_ = tracer;
    if (tracer_ == nullptr) return;
    record_ = TraceRecord();
    record_.key = key;
    record_.part = TracedPart::kLockstep;
    record_.times[0] = submitted;
  }
  void Leave() { tracer_ = nullptr; }
  [[nodiscard]] bool traced() const { return tracer_ != nullptr; }

  // The rest does nothing unless the step is traced.
  void Enqueued(LayerId layer, Epoch epoch, DispatchMode mode, std::int32_t tokens, TimePoint now) {
    if (tracer_ == nullptr) return;
    record_.layer = layer;
    record_.epoch = epoch;
    record_.mode = mode;
    record_.rows = static_cast<std::uint32_t>(tokens);
    record_.times[1] = now;
  }
  // Its device has done it. The first call counts.
  void Done(TimePoint now) {
    if (tracer_ != nullptr && record_.times[2] == TimePoint{}) record_.times[2] = now;
  }
  // Writes the step down. Nothing more of it is traced.
  void End(const absl::Status& status, TimePoint now) {
    if (tracer_ == nullptr) return;
    Done(now);
    record_.SetStatus(status);
    tracer_->Push(record_);
    tracer_ = nullptr;
  }

 private:
  StepTracer* tracer_ = nullptr;
  TraceRecord record_;
};

}  // namespace switchyard
