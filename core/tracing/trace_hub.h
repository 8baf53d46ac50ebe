// The rings of a process: one for each thread that serves steps, read in turn by the one that
// exports. Thread-safe; the threads of steps do not come here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/mutex.h"
#include "core/tracing/step_tracer.h"
#include "core/tracing/trace_record.h"
#include "core/tracing/trace_ring.h"

namespace switchyard {

class TraceHub {
 public:
  // A tracer with a ring of its own, which is read until it is empty also when the tracer is gone.
  std::shared_ptr<StepTracer> MakeTracer();
  // Appends records until `records` has `most`; from all rings in turn, so that no flood in one
  // holds up the others. One thread at a time.
  void Take(std::size_t most, std::vector<TraceRecord>* records);
  // Records that found a ring full.
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<TraceRing>> rings_ SY_GUARDED_BY(mutex_);
  std::size_t next_ SY_GUARDED_BY(mutex_) = 0;              // the ring to read first
  std::uint64_t dropped_before_ SY_GUARDED_BY(mutex_) = 0;  // by rings that are gone
};

}  // namespace switchyard
