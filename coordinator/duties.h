// Operators' requests for another duty of a worker: cordon, drain and uncordon.
//
// A request is checked, written to the store, and takes effect once that is done, so that a
// coordinator that restarts does not plan with a worker that is under repair. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/membership.h"
#include "coordinator/outbox.h"
#include "coordinator/store/worker_duty.h"
#include "core/base/clock.h"

namespace switchyard {

class Duties {
 public:
  using Deployments = std::map<std::string, DeploymentController>;
  struct Change {
    RequestId request;
    std::string worker;
    WorkerDuty duty = WorkerDuty::kServe;
    std::vector<std::string> warnings;  // of DutyView
  };

  // All outlive it.
  Duties(Membership* members, const Deployments* deployments, Outbox* out)
      : members_(members), deployments_(deployments), out_(out) {}

  // Writes the duty to the store, or says why not: kNotFound (UNKNOWN_WORKER) for one that is
  // neither a member nor has a duty; kFailedPrecondition (NOT_READY) for a drain, unless forced,
  // after which a deployment that serves could not be planned; kResourceExhausted (BAD_CONFIG) at
  // kWorkerDutiesMax.
  absl::Status Request(const DutyRequested& request, TimePoint now);
  // The change that this write was for, if it was for one.
  std::optional<Change> TakeWritten(WriteId write);

 private:
  // Collects what the deployments would lack without the worker. Errors: as Request for a drain.
  absl::Status CheckDrain(const std::string& worker, bool force, TimePoint now,
                          std::vector<std::string>* warnings) const;

  Membership* members_;
  const Deployments* deployments_;
  Outbox* out_;
  std::map<WriteId, Change> pending_;
};

}  // namespace switchyard
