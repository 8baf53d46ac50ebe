// Where the parts of a process get their tracers from: the seam between steps and the exporter
// (services/tracing).
#pragma once

#include <memory>

#include "core/trace_settings.h"
#include "core/tracing/step_tracer.h"

namespace switchyard {

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // A tracer for one thread at a time, of a session that was granted with `settings`. Never null.
  // Thread-safe.
  virtual std::shared_ptr<StepTracer> MakeTracer(const TraceSettings& settings) = 0;
};

}  // namespace switchyard
