// Asks workers for their status, at the addresses that they advertise to the coordinator: no other
// port is needed.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "ctl/run.h"
#include "switchyard/v1/coordinator.pb.h"
#include "switchyard/v1/expert.pb.h"

namespace switchyard::ctl {

// One answer of a worker.
struct WorkerSample {
  absl::Status status;  // not OK: there is no answer
  TimePoint at;
  v1::GetStatusResponse answer;
};
// In the order of `workers`, asked at the same time. A worker that does not answer within two
// seconds has an error of its own (kUnavailable, WORKER_LOST).
std::vector<WorkerSample> AskWorkers(const Run& run, const std::vector<v1::Worker>& workers,
                                     const v1::GetStatusRequest& request);

// All workers, or the one that the command line names. Errors: those of CoordinatorClient;
// kNotFound (BAD_REQUEST) for an unknown name.
absl::StatusOr<std::vector<v1::Worker>> WantedWorkers(const Run& run);

}  // namespace switchyard::ctl
