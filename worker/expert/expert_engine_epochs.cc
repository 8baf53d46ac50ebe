// The epochs of an engine: how they become available, retire, lose their bindings and go.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/expert/attach_grant.h"
#include "worker/expert/expert_engine.h"

namespace switchyard {

void ExpertEngine::Activate(StagedEpoch staged) {
  auto record = std::make_unique<EpochRecord>();
  record->epoch = {.runtime = std::move(staged.runtime), .memory = std::move(staged.memory)};
  epochs_.push_back(std::move(record));
}

void ExpertEngine::Retire(absl::string_view deployment, Epoch epoch, TimePoint now,
                          std::function<void()> unbound) {
  EpochRecord* record = Find(deployment, epoch);
  // A RETIRE that is repeated after the epoch has gone is answered like the first one: the
  // coordinator waits for the answer before it plans again.
  if (record == nullptr) {
    unbound();
    return;
  }
  // From now on FindServing refuses new bindings; those that exist go on until they are overdue.
  record->retiring = true;
  record->grace_ends = now + options_.retire_grace;
  record->unbound = std::move(unbound);
  // Sets the time of the next check, and reports an epoch without a binding at once: no later event
  // would do it.
  EndBindings(*record, now);
}

void ExpertEngine::ShortenRetire(absl::string_view deployment, Epoch epoch, TimePoint now,
                                 Duration within) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr || !record->retiring) return;
  // The shortest time that was ever asked for counts: a worker that is lost once stays a reason.
  // The bound keeps a hostile duration from overflowing the sum.
  record->ends = std::min(record->ends, now + std::min(within, kStepDeadlineMax));
  record->check_at = std::min(record->check_at, record->ends);
}

StagedEpoch ExpertEngine::Drop(absl::string_view deployment, Epoch epoch) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr) return {};
  EndBindings(*record, TimePoint::max());
  // Batches that still run share ownership, so the weights outlive this record if they must.
  StagedEpoch dropped{.runtime = std::move(record->epoch.runtime),
                      .memory = std::move(record->epoch.memory)};
  std::erase_if(epochs_, [record](const auto& held) { return held.get() == record; });
  return dropped;
}

absl::StatusOr<ExpertEngine::EpochRecord*> ExpertEngine::FindGranted(const AttachRequest& request) {
  const std::string& worker_id = options_.identity.worker_id;
  if (!request.caller.empty()) {
    // Any epoch of the deployment will do: a source whose plan is stale is told so. Whoever has no
    // grant hears the same as of a deployment that does not exist.
    absl::Status granted = CheckGrant(request, GrantKeys(), worker_id);
    for (const auto& record : epochs_) {
      const EpochRuntime& runtime = *record->epoch.runtime;
      if (granted.ok() || request.deployment != runtime.deployment()) continue;
      granted = CheckGrant(request, runtime, worker_id);
    }
    SY_RETURN_IF_ERROR(granted);
  }
  SY_ASSIGN_OR_RETURN(EpochRecord * record,
                      FindServing(request.deployment, request.epoch, request.hash));
  SY_RETURN_IF_ERROR(CheckGrant(request, *record->epoch.runtime, worker_id));
  return record;
}

absl::StatusOr<ExpertEngine::EpochRecord*> ExpertEngine::FindServing(absl::string_view deployment,
                                                                     Epoch epoch,
                                                                     const PlanHash& hash) {
  EpochRecord* record = Find(deployment, epoch);
  if (record != nullptr && !record->retiring && record->epoch.runtime->hash == hash) return record;
  // A source that sees STALE_EPOCH fetches the plan again whichever of the three it was; the text
  // is for the operator.
  const char* why = "is not committed here";
  if (record != nullptr) why = "was committed here with another plan hash";
  if (record != nullptr && record->retiring) why = "is being retired";
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                   absl::StrFormat("worker %s: epoch %d of %s %s; fetch the current plan",
                                   options_.identity.worker_id, epoch.value, deployment, why),
                   {{"worker", options_.identity.worker_id},
                    {"deployment", std::string(deployment)},
                    {"epoch", absl::StrCat(epoch.value)}});
}

ExpertEngine::EpochRecord* ExpertEngine::Find(absl::string_view deployment, Epoch epoch) {
  for (const auto& record : epochs_) {
    const EpochRuntime& runtime = *record->epoch.runtime;
    if (runtime.epoch() == epoch && deployment == runtime.deployment()) return record.get();
  }
  return nullptr;
}

std::optional<TimePoint> ExpertEngine::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& record : epochs_) {
    // An epoch that has been reported as unbound has no binding left to end.
    if (!record->retiring || !record->unbound || record->check_at == TimePoint::max()) continue;
    next = std::min(next.value_or(TimePoint::max()), record->check_at);
  }
  return next;
}

bool ExpertEngine::KeepTimers(TimePoint now) {
  bool ended = false;
  for (const auto& record : epochs_) {
    if (!record->retiring || !record->unbound || now < record->check_at) continue;
    ended |= EndBindings(*record, now);
  }
  return ended;
}

bool ExpertEngine::EndBindings(EpochRecord& record, TimePoint now) {
  std::vector<AttachmentId> overdue;
  record.check_at = TimePoint::max();
  for (const auto& [number, attachment] : attachments_) {
    if (!attachment->Binds(&record.epoch)) continue;
    const TimePoint end = std::min(record.ends, record.grace_ends + attachment->step_deadline());
    if (end <= now) {
      overdue.push_back(number);
    } else {
      record.check_at = std::min(record.check_at, end);
    }
  }
  std::sort(overdue.begin(), overdue.end());  // A map of hashes has another order in each process.
  const EpochRuntime& runtime = *record.epoch.runtime;
  for (const AttachmentId number : overdue) {
    ExpertAttachment& attachment = *attachments_.at(number);
    attachment.ReleaseOverdue(&record.epoch);
    if (options_.on_overdue) options_.on_overdue(number, runtime);
    // A source that has switched goes on, whatever it still owes to this epoch.
    if (attachment.has_bindings()) continue;
    Close(number);
    if (!options_.on_closed) continue;
    options_.on_closed(
        number, MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                          absl::StrFormat("worker %s: epoch %d of %s was retired while it was "
                                          "still bound; attach under the current plan",
                                          options_.identity.worker_id, runtime.epoch().value,
                                          runtime.deployment()),
                          {{"worker", options_.identity.worker_id},
                           {"epoch", absl::StrCat(runtime.epoch().value)}}));
  }
  ReportUnbound();
  return !overdue.empty();
}

void ExpertEngine::ReportUnbound() {
  for (const auto& record : epochs_) {
    if (!record->retiring || !record->unbound || IsBound(*record)) continue;
    // Cleared before the call, so that it comes at most once.
    std::exchange(record->unbound, nullptr)();
  }
}

bool ExpertEngine::IsBound(const EpochRecord& record) const {
  const auto runs = [&record](const ExpertLane& lane) {
    return lane.batch->runtime() == record.epoch.runtime.get();
  };
  // Running batches count too: the device reads weights of the epoch although no attachment binds
  // it.
  return std::any_of(lanes_.begin(), lanes_.end(), runs) ||
         std::any_of(attachments_.begin(), attachments_.end(),
                     [&record](const auto& entry) { return entry.second->Binds(&record.epoch); });
}

}  // namespace switchyard
