#include "coordinator/plan_builder.h"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/config_planner.h"
#include "coordinator/placement/former_shares.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/refusal.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Bytes of memory left for weights. A worker that reports no limit counts as unlimited: to plan
// nothing onto it would make every worker without a configured limit useless.
std::int64_t RoomOf(const Candidate& candidate) {
  const std::int64_t max = candidate.capabilities.weight_bytes_max;
  if (max <= 0) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(max - candidate.used_bytes, 0);
}

void SortById(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.worker.id < b.worker.id; });
}

// The first to be left out comes last: the least room, then those that do not serve, then the
// higher id. Keeping those that serve moves fewer experts.
void SortByRank(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
      return std::make_tuple(-RoomOf(c), !c.serves, c.worker.id);
    };
    return rank(a) < rank(b);
  });
}

absl::StatusOr<Plan> PlanWith(const DeploymentRecord& deployment, const Sha256Digest& manifest,
                              std::vector<Candidate> candidates, const PlacementPolicy& policy,
                              std::vector<Warning>* warnings) {
  SortById(candidates);
  const ModelFacts& facts = deployment.facts;
  PlacementRequest request{facts.layers, facts.shape.experts, facts.ExpertBytes(), {}};
  std::vector<CapabilitySet> capabilities;
  Plan plan;
  plan.deployment = deployment.spec.name;
  plan.model = deployment.spec.model;
  plan.shape = facts.shape;
  plan.manifest = manifest;
  for (Candidate& candidate : candidates) {
    const bool bounded = candidate.capabilities.weight_bytes_max > 0;
    // 0 means "unknown" to the policy; a full worker must not pass for an unlimited one.
    const std::int64_t room = bounded ? std::max<std::int64_t>(RoomOf(candidate), 1) : 0;
    request.workers.push_back(
        {candidate.worker.id, room, std::move(candidate.holds), std::move(candidate.held)});
    capabilities.push_back(std::move(candidate.capabilities));
    // In the order of ids: ordinals are part of the plan, and sums over workers are in their order.
    plan.workers.push_back(std::move(candidate.worker));
  }
  SY_ASSIGN_OR_RETURN(plan.layers, policy.Place(request));
  SY_ASSIGN_OR_RETURN(plan.configs, PlanConfigs(deployment.spec, facts, capabilities, warnings));
  return plan;
}

// Checks each worker by itself: can rows to it be resolved? A worker that fails is left out by
// name, whereas the configs of a whole plan would not say whose edge failed. Workers of equal
// ability are resolved once, since resolving takes a pass over all layers.
class EdgeCheck {
 public:
  explicit EdgeCheck(const DeploymentRecord& deployment) : deployment_(&deployment) {}

  // Errors: those of PlanConfigs.
  absl::Status Check(const Candidate& candidate) {
    CapabilitySet ability = candidate.capabilities;
    ability.weight_bytes_max = 0;  // Differs between equal machines and does not matter here.
    for (const Known& known : known_) {
      if (known.ability == ability) return known.status;
    }
    const absl::Status resolves =
        PlanConfigs(deployment_->spec, deployment_->facts, std::span(&ability, 1)).status();
    known_.push_back({std::move(ability), resolves});
    return resolves;
  }

 private:
  struct Known {
    CapabilitySet ability;
    absl::Status status;
  };
  const DeploymentRecord* deployment_;
  std::vector<Known> known_;
};

}  // namespace

absl::StatusOr<PlanProposal> BuildPlan(const DeploymentRecord& deployment,
                                       std::vector<Candidate> candidates,
                                       const PlacementPolicy& policy) {
  PlanProposal proposal;
  absl::Status first_problem;
  const auto leave_out = [&proposal](const Candidate& candidate, absl::string_view why) {
    proposal.left_out.push_back(absl::StrCat(candidate.worker.id, ": ", why));
  };
  // The first problem is reported, but a refusal replaces one that is none: it says that no worker
  // would help, which is what the operator has to know.
  const auto note_problem = [&first_problem](const absl::Status& why) {
    if (IsRefusal(why) && !IsRefusal(first_problem)) first_problem = why;
    first_problem.Update(why);
  };
  SortById(candidates);
  std::vector<Candidate> suited;
  EdgeCheck edges(deployment);
  for (Candidate& candidate : candidates) {
    const absl::Status suits = CheckWorkerSuits(deployment.facts, candidate.capabilities);
    const absl::Status resolves = suits.ok() ? edges.Check(candidate) : absl::OkStatus();
    if (suits.ok() && resolves.ok()) {
      suited.push_back(std::move(candidate));
      continue;
    }
    leave_out(candidate, suits.ok() ? resolves.message() : suits.message());
    note_problem(Annotate(suits, absl::StrCat("worker ", candidate.worker.id)));
    note_problem(resolves);
  }
  SortByRank(suited);
  // A worker without an expert would have nothing to do and could still make steps fail.
  const std::size_t experts =
      deployment.facts.layers.size() * static_cast<std::size_t>(deployment.facts.shape.experts);
  while (suited.size() > experts) {
    leave_out(suited.back(), "every expert already has a worker");
    suited.pop_back();
  }
  // Hashed once: it is the same for every attempt below, and large.
  const Sha256Digest manifest = deployment.facts.manifest.Hash();
  // Fewer workers mean larger shares, so that this need not succeed. It ends, because each round
  // takes one worker away.
  while (!suited.empty()) {
    proposal.warnings.clear();
    absl::StatusOr<Plan> plan = PlanWith(deployment, manifest, suited, policy, &proposal.warnings);
    if (plan.ok()) {
      proposal.plan = *std::move(plan);
      return proposal;
    }
    note_problem(plan.status());
    leave_out(suited.back(), plan.status().message());
    suited.pop_back();
  }
  if (!first_problem.ok()) return first_problem;
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrFormat("there is no worker that deployment %s may use; start one, or end "
                      "the drain of one ('syctl get workers', 'syctl uncordon')",
                      deployment.spec.name),
      {{"deployment", deployment.spec.name}});
}

// Only the worker's own hashes: the manifest of a large model is many megabytes, and a message has
// a limit.
Prepare PrepareFor(const Plan& plan, const PlanHash& hash, const DeploymentRecord& deployment,
                   WorkerOrdinal ordinal) {
  Prepare prepare;
  prepare.plan = plan;
  prepare.hash = hash;
  prepare.checkpoint = deployment.spec.checkpoint;
  for (const LayerPlacement& layer : plan.layers) {
    for (const PhysicalExpert& physical : layer.experts) {
      if (physical.worker != ordinal) continue;
      // In the order of the manifest.
      for (const Projection p : kAllProjections) {
        const TensorHash* row = deployment.facts.manifest.Find(layer.layer, physical.expert, p);
        if (row != nullptr) prepare.tensors.push_back(*row);
      }
    }
  }
  return prepare;
}

std::string ChangesOf(const Plan* before, const Plan& next, const WayOut& way_out) {
  std::int64_t all = 0;
  for (const LayerPlacement& layer : next.layers) {
    all += static_cast<std::int64_t>(layer.experts.size());
  }
  if (!ShareWeights(before, &next)) {
    return absl::StrFormat("%s: all %d experts are loaded",
                           before == nullptr ? "the first plan" : "another checkpoint", all);
  }
  const std::vector<std::vector<LayerExpert>> old_shares = SharesIn(*before);
  const std::vector<std::vector<LayerExpert>> new_shares = SharesIn(next);
  std::int64_t moved = 0;
  std::vector<std::string> why;
  for (std::size_t w = 0; w < new_shares.size(); ++w) {
    const PlanWorker& worker = next.workers[w];
    const auto ordinal = before->FindWorker(worker.id);
    if (!ordinal) {
      why.push_back(absl::StrCat(worker.id, " joins"));
      moved += static_cast<std::int64_t>(new_shares[w].size());
      continue;
    }
    const auto index = static_cast<std::size_t>(ordinal->value);
    if (before->workers[index].incarnation != worker.incarnation) {
      why.push_back(absl::StrCat(worker.id, " has restarted"));
    }
    moved += std::count_if(new_shares[w].begin(), new_shares[w].end(), [&](const LayerExpert& e) {
      return !std::binary_search(old_shares[index].begin(), old_shares[index].end(), e);
    });
  }
  for (const PlanWorker& worker : before->workers) {
    if (!next.FindWorker(worker.id)) why.push_back(absl::StrCat(worker.id, " ", way_out(worker)));
  }
  return absl::StrFormat("%d of %d experts move; %s", moved, all,
                         why.empty() ? "the same workers" : absl::StrJoin(why, ", "));
}

std::int32_t ExpertsOn(const Plan& plan, WorkerOrdinal ordinal) {
  // Physical experts: two replicas of one expert on a worker would count twice, as they take memory
  // twice.
  std::ptrdiff_t experts = 0;
  for (const LayerPlacement& layer : plan.layers) {
    experts += std::count_if(layer.experts.begin(), layer.experts.end(),
                             [ordinal](const PhysicalExpert& p) { return p.worker == ordinal; });
  }
  return static_cast<std::int32_t>(experts);
}

}  // namespace switchyard
