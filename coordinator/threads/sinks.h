// The ends of streams and watches that the driver calls (coordinator/driver.h), on its own thread
// or on the one that calls Shutdown. Calls must return quickly.
#pragma once

#include <memory>

#include "absl/status/status.h"

#include "core/control_messages.h"
#include "core/session_messages.h"

namespace switchyard {

// The coordinator's end of one worker's stream. May be called before OpenWorkerStream has returned.
class WorkerStreamSink {
 public:
  virtual ~WorkerStreamSink() = default;
  virtual void Send(const CoordinatorMessage& message) = 0;
  // Called at most once: the coordinator ends the stream with `why` (the status of the RPC).
  virtual void Close(const absl::Status& why) = 0;
};

// The coordinator's end of one WatchPlan.
class PlanUpdateSink {
 public:
  virtual ~PlanUpdateSink() = default;
  virtual void OnPlanUpdate(const std::shared_ptr<const PlanUpdate>& update) = 0;
  // Called at most once, last.
  virtual void OnClosed(const absl::Status& why) = 0;
};

}  // namespace switchyard
