#include "ctl/lifecycle.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard::ctl {
namespace {

// "3 sessions are open"
std::string SessionsText(std::uint32_t sessions) {
  return sessions == 1 ? "1 session is open" : absl::StrCat(sessions, " sessions are open");
}

absl::string_view ConditionWord(Condition condition) {
  switch (condition) {
    case Condition::kServing:
      return "serving";
    case Condition::kDeleted:
      return "deleted";
    case Condition::kLive:
      return "live";
    case Condition::kDrained:
      return "drained";
    case Condition::kCordoned:
      return "cordoned";
  }
  return "";
}

// Returns what a wait has led to, as JSON.
std::string Became(const char* kind, const std::string& name, Condition condition) {
  return Print({{kind, name}, {"condition", std::string(ConditionWord(condition))}});
}

// Waits if the command line says so, and replaces what the coordinator answered before.
template <typename Response>
absl::Status WaitForDuty(const Run& run, Condition condition, Response* response) {
  if (!run.line.wait) return absl::OkStatus();
  v1::Worker found;
  Waiting waiting = run.waiting();
  waiting.agreed = true;
  SY_RETURN_IF_ERROR(WaitForWorker(waiting, run.line.name, condition, &found));
  if (!found.id().empty()) *response->mutable_worker() = std::move(found);
  return absl::OkStatus();
}

}  // namespace

absl::Status Rollback(const Run& run, std::string* out) {
  const std::string& name = run.line.name;
  // Asked before, because the response does not show whether anything changed.
  SY_ASSIGN_OR_RETURN(const v1::GetDeploymentResponse before, run.coordinator.Deployment(name));
  SY_ASSIGN_OR_RETURN(v1::RollbackDeploymentResponse response,
                      run.coordinator.Rollback(name, run.line.to_revision));
  v1::Deployment& after = *response.mutable_deployment();
  const std::uint64_t made = after.revision();
  if (run.line.wait && RefusalOf(after).ok()) {
    SY_RETURN_IF_ERROR(WaitForDeployment(run.waiting(), name, Condition::kServing, &after));
    if (after.revision() != made) {
      return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                       absl::StrFormat("deployment %s: revision %d serves: it was applied after "
                                       "revision %d, to which this rollback led; 'syctl get "
                                       "revisions %s' lists them",
                                       name, after.revision(), made, name));
    }
  }
  *out += run.Show(response, [&](const v1::RollbackDeploymentResponse& /*message*/) {
    if (after.revision() == before.deployment().revision()) {
      return absl::StrCat("deployment ", name, " is unchanged: revision ", after.revision(),
                          " is the same\n");
    }
    return absl::StrCat("deployment ", name, " is rolled back as revision ", after.revision(),
                        run.line.wait ? ", which serves" : "", "\n");
  });
  return RefusalOf(after);
}

absl::Status DeleteDeployment(const Run& run, std::string* out) {
  const std::string& name = run.line.name;
  SY_ASSIGN_OR_RETURN(const v1::DeleteDeploymentResponse response,
                      run.coordinator.Delete(name, run.line.now));
  if (run.line.wait) {
    Waiting waiting = run.waiting();
    waiting.agreed = true;
    SY_RETURN_IF_ERROR(WaitForDeployment(waiting, name, Condition::kDeleted));
    // The response shows it as it was.
    if (run.json()) {
      *out += Became("deployment", name, Condition::kDeleted);
      return absl::OkStatus();
    }
  }
  *out += run.Show(response, [&](const v1::DeleteDeploymentResponse& message) {
    if (run.line.wait) return absl::StrCat("deployment ", name, " is deleted\n");
    const std::string sessions =
        run.line.now ? "" : absl::StrCat("; ", SessionsText(message.deployment().sessions()));
    return absl::StrCat("deployment ", name, " is being deleted", sessions, "\n");
  });
  return absl::OkStatus();
}

absl::Status SetDuty(const Run& run, std::string* out) {
  const std::string& worker = run.line.name;
  const auto says = [&worker](absl::string_view what) {
    return [&worker, what](const auto& /*message*/) {
      return absl::StrCat("worker ", worker, " ", what, "\n");
    };
  };
  if (run.line.verb == Verb::kCordon) {
    SY_ASSIGN_OR_RETURN(auto response, run.coordinator.Cordon(worker));
    SY_RETURN_IF_ERROR(WaitForDuty(run, Condition::kCordoned, &response));
    *out += run.Show(response, says("is cordoned"));
    return absl::OkStatus();
  }
  if (run.line.verb == Verb::kUncordon) {
    SY_ASSIGN_OR_RETURN(auto response, run.coordinator.Uncordon(worker));
    SY_RETURN_IF_ERROR(WaitForDuty(run, Condition::kLive, &response));
    *out += run.Show(response, says(run.line.wait ? "is live" : "may be used by plans"));
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(auto response, run.coordinator.Drain(worker, run.line.force));
  std::string warnings;
  for (const std::string& warning : response.warnings()) {
    absl::StrAppend(&warnings, "warning: ", warning, "\n");
  }
  // Before the wait, which may end with an error.
  if (!run.json()) *out += warnings;
  SY_RETURN_IF_ERROR(WaitForDuty(run, Condition::kDrained, &response));
  *out += run.Show(response, says(run.line.wait ? "is drained" : "is being drained"));
  return absl::OkStatus();
}

absl::Status WaitForObject(const Run& run, std::string* out) {
  const bool worker = run.line.kind == Kind::kWorkers;
  SY_RETURN_IF_ERROR(worker ? WaitForWorker(run.waiting(), run.line.name, run.line.condition)
                            : WaitForDeployment(run.waiting(), run.line.name, run.line.condition));
  const char* kind = worker ? "worker" : "deployment";
  if (run.json()) {
    *out += Became(kind, run.line.name, run.line.condition);
  } else {
    absl::StrAppend(out, kind, " ", run.line.name, " is ", ConditionWord(run.line.condition), "\n");
  }
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
