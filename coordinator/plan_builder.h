// Makes the plan that a deployment should have, from the workers that are available. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/placement/placement_policy.h"
#include "coordinator/spec/deployment_record.h"
#include "core/capability.h"
#include "core/control_messages.h"
#include "core/plan.h"

namespace switchyard {

// A worker that a plan may use.
struct Candidate {
  PlanWorker worker;
  CapabilitySet capabilities;
  // Weights of other deployments, and of this one's serving plan where the record has another
  // checkpoint.
  std::int64_t used_bytes = 0;
  // The rest of what the placement policy has to know (PlacementWorker).
  std::vector<LayerExpert> holds = {};
  std::vector<LayerExpert> held = {};
  // In the serving plan; preferred where not all are needed.
  bool serves = false;
};

// A plan without a number, and what the operator should know about it.
struct PlanProposal {
  // Epoch 0, workers ascending by id.
  Plan plan;
  std::vector<std::string> left_out;  // "w3: why"
  // ChangesOf the plan that serves.
  std::string changes = {};
  // About its configs, the first of each id.
  std::vector<Warning> warnings;
};

// Uses as many candidates as the model can: those that suit it, at most one for each expert of each
// layer. Where
// a share does not fit into a worker's memory, uses the largest number for which every share fits;
// those with the least room are left out first. Equal candidates in any order give equal proposals,
// so that planning again without a cause changes nothing. Errors: kUnavailable (NOT_READY) without
// candidates; else the first refusal (IsRefusal), or, if there is none, the first reason why no
// candidate can be used. Cost: for each worker that is left out, one placement and one set of
// configs.
absl::StatusOr<PlanProposal> BuildPlan(const DeploymentRecord& deployment,
                                       std::vector<Candidate> candidates,
                                       const PlacementPolicy& policy);

// The PREPARE of `plan` for its worker number `ordinal`: the whole plan, and the hashes of only
// those tensors that this worker loads. Nonce and grant keys are the caller's to set.
Prepare PrepareFor(const Plan& plan, const PlanHash& hash, const DeploymentRecord& deployment,
                   WorkerOrdinal ordinal);

// Says what becomes of a worker that the next plan does without: "is drained".
using WayOut = std::function<std::string(const PlanWorker&)>;
// How many experts `next` places on workers that do not hold them in `before` (null: none), and
// why: "24 of 192 experts move; w3 joins".
std::string ChangesOf(const Plan* before, const Plan& next, const WayOut& way_out);

// Physical experts, summed over all layers, that `plan` puts on its worker number `ordinal`.
std::int32_t ExpertsOn(const Plan& plan, WorkerOrdinal ordinal);

}  // namespace switchyard
