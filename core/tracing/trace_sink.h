// Where the parts of a process get their tracers from: the seam between steps and the exporter
// (services/tracing).
#pragma once

#include <memory>

#include "core/trace_settings.h"
#include "core/tracing/step_tracer.h"
#include "core/tracing/trace_counts.h"

namespace switchyard {

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // A tracer for one thread at a time, of a session that was granted with `settings`. Never null.
  // Thread-safe.
  virtual std::shared_ptr<StepTracer> MakeTracer(const TraceSettings& settings) = 0;
  // Counts for all its tracers so far. Thread-safe.
  [[nodiscard]] virtual TraceCounts counts() const { return {}; }
};

}  // namespace switchyard
