// Makes the plan that a deployment ought to have, out of the workers that are there. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/placement/placement_policy.h"
#include "core/capability.h"
#include "core/control_messages.h"
#include "core/plan.h"

namespace switchyard {

struct Candidate {
  PlanWorker worker;
  CapabilitySet capabilities;
  std::int64_t used_bytes = 0;  // weights of other deployments
  bool serves = false;          // is in the plan that serves; preferred where not all are needed
};

struct PlanDraft {
  Plan plan;                          // epoch 0, workers ascending by id
  std::vector<std::string> left_out;  // "w3: why"
  std::vector<Warning> warnings;      // about its configs, the first of each id
};

// Takes as many candidates as the model can use: those that suit it, at most one for each expert,
// and where a share does not fit, the largest number for which all shares do (those with the least
// room are left out first). Equal candidates in any order give equal drafts.
// Errors: kUnavailable (NOT_READY) for no candidate; else the first refusal (IsRefusal), or, where
// there is none, the first reason why not even one worker would do.
absl::StatusOr<PlanDraft> BuildPlan(const DeploymentRecord& deployment,
                                    std::vector<Candidate> candidates,
                                    const PlacementPolicy& policy);

// The PREPARE of `plan` for its worker number `ordinal`.
Prepare PrepareFor(const Plan& plan, const PlanHash& hash, const DeploymentRecord& deployment,
                   WorkerOrdinal ordinal);

// Physical experts, summed over all layers, that `plan` puts on its worker number `ordinal`.
std::int32_t ExpertsOn(const Plan& plan, WorkerOrdinal ordinal);

// Bytes of expert weights that `plan` puts on its worker number `ordinal`.
std::int64_t WeightBytesOn(const Plan& plan, std::int64_t expert_bytes, WorkerOrdinal ordinal);

}  // namespace switchyard
