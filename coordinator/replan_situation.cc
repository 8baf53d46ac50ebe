#include "coordinator/replan_situation.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/config_planner.h"

namespace switchyard {

ReplanSituation LookAtMembers(const Membership& members, const ServingEpoch& serving,
                              const EpochRule& rule, const DeploymentRecord& record,
                              const Quarantine& quarantine, TimePoint now) {
  ReplanSituation found;
  ReplanGate::Situation& situation = found.gate;
  for (const auto& [id, member] : members.members()) {
    // The plan does without it, so that it gets no third epoch.
    if (!member.stuck.empty()) continue;
    // One is enough to wait for; the next Evaluate finds the others.
    const std::optional<Epoch> epoch = rule.BlockingEpoch(member.holds);
    if (!epoch) continue;
    situation.holder = absl::StrFormat("waiting for worker %s to free epoch %d", id, epoch->value);
    break;
  }
  situation.disconnected = serving.FirstDisconnected();
  situation.serving_worker_present = serving.AnyPresent();
  situation.serving_holds = serving.Holds();
  situation.serving_workers = serving.size();
  situation.lost_workers = serving.CountLost();
  const std::vector<std::string>& pools = record.spec.pools;
  // Workers that the plan would leave out do not count towards min_workers. With no others, the
  // proposal says best what they lack.
  for (const std::string& id : members.CandidateIds(serving.plan(), pools)) {
    absl::Status usable = CheckWorkerSuits(record.facts, members.members().at(id).capabilities);
    if (quarantine.IsExcluded(id, now)) usable = absl::UnavailableError(quarantine.ReasonFor(id));
    if (usable.ok()) {
      situation.candidates.push_back(id);
    } else {
      absl::StrAppend(&found.unused, "; ", id, " cannot be used: ", usable.message());
    }
  }
  for (const std::string& each : members.Problems(serving.plan(), pools)) {
    absl::StrAppend(&found.unused, "; ", each);
  }
  if (!pools.empty() && members.CandidateIds(serving.plan(), pools).empty()) {
    absl::StrAppend(&found.unused, "; no worker of ", pools.size() == 1 ? "pool " : "pools ",
                    absl::StrJoin(pools, ", "), " can be used");
  }
  if (situation.candidates.empty()) {
    situation.candidates = members.CandidateIds(serving.plan(), pools);
  }
  return found;
}

}  // namespace switchyard
