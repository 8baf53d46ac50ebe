#include "ctl/lifecycle.h"

#include "absl/strings/str_cat.h"

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
  }
  return "";
}

}  // namespace

absl::Status Rollback(const Run& run, std::string* out) {
  const std::string& name = run.line.name;
  // Asked before, because the response does not show whether anything changed.
  SY_ASSIGN_OR_RETURN(const v1::GetDeploymentResponse before, run.coordinator.Deployment(name));
  SY_ASSIGN_OR_RETURN(const v1::RollbackDeploymentResponse response,
                      run.coordinator.Rollback(name, run.line.to_revision));
  const v1::Deployment& after = response.deployment();
  if (run.line.wait && RefusalOf(after).ok()) {
    SY_RETURN_IF_ERROR(WaitForDeployment(run.waiting(), name, Condition::kServing));
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
    SY_RETURN_IF_ERROR(WaitForDeployment(run.waiting(), name, Condition::kDeleted));
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
    SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Cordon(worker));
    *out += run.Show(response, says("is cordoned"));
    return absl::OkStatus();
  }
  if (run.line.verb == Verb::kUncordon) {
    SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Uncordon(worker));
    *out += run.Show(response, says("may be used by plans"));
    return absl::OkStatus();
  }
  SY_ASSIGN_OR_RETURN(const auto response, run.coordinator.Drain(worker, run.line.force));
  std::string warnings;
  for (const std::string& warning : response.warnings()) {
    absl::StrAppend(&warnings, "warning: ", warning, "\n");
  }
  // Before the wait, which may end with an error.
  if (!run.json()) *out += warnings;
  if (run.line.wait) {
    SY_RETURN_IF_ERROR(WaitForWorker(run.waiting(), worker, Condition::kDrained));
  }
  *out += run.Show(response, says(run.line.wait ? "is drained" : "is being drained"));
  return absl::OkStatus();
}

absl::Status WaitForObject(const Run& run, std::string* out) {
  const bool worker = run.line.kind == Kind::kWorkers;
  SY_RETURN_IF_ERROR(worker ? WaitForWorker(run.waiting(), run.line.name, run.line.condition)
                            : WaitForDeployment(run.waiting(), run.line.name, run.line.condition));
  const char* kind = worker ? "worker" : "deployment";
  const std::string became(ConditionWord(run.line.condition));
  if (run.json()) {
    *out += Print({{kind, run.line.name}, {"condition", became}});
  } else {
    absl::StrAppend(out, kind, " ", run.line.name, " is ", became, "\n");
  }
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
