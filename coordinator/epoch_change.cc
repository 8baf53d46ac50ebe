#include "coordinator/epoch_change.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace switchyard {

bool EpochChange::Involves(const std::string& id, const Incarnation& incarnation) const {
  return news != nullptr &&
         std::any_of(plan().workers.begin(), plan().workers.end(), [&](const PlanWorker& worker) {
           return worker.id == id && worker.incarnation == incarnation;
         });
}

bool EpochChange::AllAnswered() const { return Missing().empty(); }

std::vector<std::string> EpochChange::Missing() const {
  std::vector<std::string> missing;
  for (const PlanWorker& worker : plan().workers) {
    if (!answered.contains(worker.id)) missing.push_back(worker.id);
  }
  return missing;
}

void EpochChange::EnterPhase(ChangePhase next, TimePoint answers_by) {
  phase = next;
  answered.clear();
  deadline = answers_by;
  failure = absl::OkStatus();
  culprits.clear();
}

std::string EpochChange::Describe() const {
  const auto waiting = [this] {
    return absl::StrCat("waiting for ", absl::StrJoin(Missing(), ", "));
  };
  const std::string number = absl::StrCat("epoch ", epoch.value);
  switch (phase) {
    case ChangePhase::kReserving:
      return absl::StrCat("taking a number for ", number);
    case ChangePhase::kPreparing:
      return absl::StrCat("preparing ", number, ": ", waiting());
    case ChangePhase::kWriting:
      return absl::StrCat("storing ", number);
    case ChangePhase::kCommitting:
      return absl::StrCat("committing ", number, ": ", waiting());
    case ChangePhase::kMarking:
      return absl::StrCat("storing that ", number, " serves");
  }
  return number;
}

}  // namespace switchyard
