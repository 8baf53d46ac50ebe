#include "coordinator/plan_proposal.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/refusal.h"
#include "core/base/amount_text.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// nullopt when no candidate is quarantined, or when the others are not sufficient.
std::optional<PlanProposal> ProposeWithoutQuarantined(const DeploymentRecord& record,
                                                      const std::vector<Candidate>& candidates,
                                                      const Quarantine& quarantine,
                                                      const PlacementPolicy& policy,
                                                      TimePoint now) {
  // A copy: the caller needs all of them if this attempt fails.
  std::vector<Candidate> trusted = candidates;
  std::erase_if(trusted,
                [&](const Candidate& c) { return quarantine.IsExcluded(c.worker.id, now); });
  // Below min_workers the deployment would get less than the operator requested, for a worker that
  // may recover.
  const bool enough = static_cast<int>(trusted.size()) >= record.spec.min_workers;
  if (!enough || trusted.size() == candidates.size()) return std::nullopt;
  absl::StatusOr<PlanProposal> proposal = BuildPlan(record, std::move(trusted), policy);
  // Whatever the reason, the caller tries again with all candidates and reports that outcome.
  if (!proposal.ok()) return std::nullopt;
  for (const Candidate& candidate : candidates) {
    const std::string& id = candidate.worker.id;
    if (!quarantine.IsExcluded(id, now)) continue;
    proposal->left_out.push_back(absl::StrCat(id, ": failed twice: ", quarantine.ReasonFor(id)));
  }
  return *std::move(proposal);
}

}  // namespace

std::vector<Candidate> CandidatesFor(const DeploymentRecord& record, const HeldWeights& serving,
                                     const FormerShares& former, const Membership& members,
                                     const MemoryLedger& memory, TimePoint now) {
  std::vector<std::vector<LayerExpert>> shares;
  if (serving.plan != nullptr) shares = SharesIn(*serving.plan);
  // A worker can keep nothing of another checkpoint, and holds all of it until the new plan serves.
  const bool same_weights = serving.plan != nullptr && serving.plan->model == record.spec.model &&
                            serving.plan->manifest == record.facts.manifest.Hash();
  std::vector<Candidate> all;
  // Disconnected workers are not candidates: PREPARE could not reach them.
  for (const std::string& id : members.CandidateIds(serving.plan, record.spec.pools)) {
    const Member& member = members.members().at(id);
    Candidate candidate;
    candidate.worker = {id, member.incarnation, member.endpoint, member.capabilities.device,
                        member.capabilities.kernel_family};
    candidate.capabilities = member.capabilities;
    candidate.used_bytes = memory.UsedByOthers(record.spec.name, id);
    candidate.held = former.Of(id, now);
    const auto ordinal = serving.plan == nullptr ? std::nullopt : serving.plan->FindWorker(id);
    candidate.serves = ordinal.has_value();
    if (ordinal) {
      std::vector<LayerExpert>& share = shares[static_cast<std::size_t>(ordinal->value)];
      if (same_weights) {
        candidate.holds = std::move(share);
      } else {
        candidate.used_bytes += static_cast<std::int64_t>(share.size()) * serving.expert_bytes;
      }
    }
    all.push_back(std::move(candidate));
  }
  return all;
}

absl::StatusOr<PlanProposal> ProposePlan(const DeploymentRecord& record,
                                         const std::vector<Candidate>& candidates,
                                         const Quarantine& quarantine,
                                         const PlacementPolicy& policy, TimePoint now) {
  if (auto trusted = ProposeWithoutQuarantined(record, candidates, quarantine, policy, now)) {
    return *std::move(trusted);
  }
  absl::StatusOr<PlanProposal> proposal = BuildPlan(record, candidates, policy);
  if (proposal.ok()) return proposal;
  if (IsRefusal(proposal.status())) {
    return Annotate(proposal.status(), absl::StrCat("deployment ", record.spec.name));
  }
  // These workers lack something, but it may be that no other kind would do either: then waiting
  // for workers is pointless, and the operator has to know.
  SY_RETURN_IF_ERROR(CheckServable(record));
  std::vector<std::string> ids;
  for (const Candidate& candidate : candidates) ids.push_back(candidate.worker.id);
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrFormat("deployment %s: %d workers are connected (%s), %d are "
                      "requested: %s",
                      record.spec.name, ids.size(), ids.empty() ? "none" : absl::StrJoin(ids, ", "),
                      record.spec.min_workers, proposal.status().message()),
      {{"deployment", record.spec.name}});
}

}  // namespace switchyard
