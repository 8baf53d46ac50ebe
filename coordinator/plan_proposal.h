// Proposes the plan that a deployment should have now: BuildPlan, with quarantine and with errors
// in the deployment's terms. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/membership.h"
#include "coordinator/placement/former_shares.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/plan_builder.h"
#include "coordinator/quarantine.h"
#include "coordinator/spec/deployment_record.h"
#include "core/base/clock.h"

namespace switchyard {

// Connected workers that do not leave, ascending by id, as candidates for `record`. `serving` is
// what its deployment's serving plan holds.
std::vector<Candidate> CandidatesFor(const DeploymentRecord& record, const HeldWeights& serving,
                                     const FormerShares& former, const Membership& members,
                                     const MemoryLedger& memory, TimePoint now);

// Leaves quarantined workers out where the others are at least `min_workers` and can hold the
// model; `left_out` then names them. Otherwise takes them in: a plan that may fail beats none.
// Errors: a refusal (coordinator/refusal.h) when no worker could make the configuration work;
// else kUnavailable (NOT_READY), naming the candidates and what they lack.
absl::StatusOr<PlanProposal> ProposePlan(const DeploymentRecord& record,
                                         const std::vector<Candidate>& candidates,
                                         const Quarantine& quarantine,
                                         const PlacementPolicy& policy, TimePoint now);

}  // namespace switchyard
