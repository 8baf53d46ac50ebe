#include "ctl/waiting.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/amount_text.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "ctl/output/progress.h"
#include "services/convert/enum_words.h"
#include "services/grpc/grpc_status.h"

namespace switchyard::ctl {
namespace {

constexpr Duration kEvery = std::chrono::milliseconds(500);
constexpr Duration kEveryLogLine = std::chrono::seconds(10);

// Nobody notifies: one thread does nothing else.
void SleepUntil(TimePoint when) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  while (never.WaitUntil(mutex, when)) {
  }
}

// The result of one look at the object.
struct Look {
  bool done = false;
  absl::Status failed = {};  // waiting on is no use
  std::string still = {};    // what it waits for
  std::optional<ProgressFacts> progress = {};
};

// Says what a wait waits for to whoever looks on.
class Teller {
 public:
  Teller(const Waiting& waiting, const std::string& what, TimePoint now)
      : waiting_(waiting), what_(what), log_at_(now + kEveryLogLine) {}
  ~Teller() { Clear(); }
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;

  void Tell(const Look& look, TimePoint now) {
    const std::string line = absl::StrCat(what_, ": ", look.still);
    if (look.progress && waiting_.progress) {
      waiting_.progress(look.progress);
    } else if (line != told_) {
      Clear();
      if (waiting_.tell) waiting_.tell(line);
      told_ = line;
    }
    if (!waiting_.log || now < log_at_) return;
    waiting_.log(line);
    log_at_ = now + kEveryLogLine;
  }

 private:
  void Clear() {
    if (waiting_.progress) waiting_.progress(std::nullopt);
  }
  const Waiting& waiting_;
  const std::string& what_;
  std::string told_;
  TimePoint log_at_;
};

absl::Status Wait(const Waiting& waiting, const std::string& what, absl::FunctionRef<Look()> look) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const TimePoint end = now() + waiting.timeout;
  Teller teller(waiting, what, now());
  for (;;) {
    const Look seen = look();
    if (seen.done) return absl::OkStatus();
    if (!seen.failed.ok()) return seen.failed;
    teller.Tell(seen, now());
    if (now() >= end) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waiting.timeout);
      return MakeError(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                       absl::StrFormat("%s: not within %g s: %s", what,
                                       static_cast<double>(ms.count()) / 1000, seen.still));
    }
    SleepUntil(std::min(now() + kEvery, end));
  }
}

// The coordinator may be restarting.
Look LookOfError(const absl::Status& status) {
  if (ReasonOf(status) != Reason::kCoordinatorLost) return {.failed = status};
  return {.still = std::string(status.message())};
}

Look LookAt(const v1::Deployment& deployment, Condition condition) {
  Look look;
  look.still = deployment.activity();
  if (deployment.has_problem()) absl::StrAppend(&look.still, "; ", deployment.problem().message());
  look.progress = ProgressOf(deployment);
  if (condition != Condition::kServing) {
    // One that is not on its way out would never be deleted.
    if (deployment.state() != v1::DEPLOYMENT_STATE_DELETING) {
      look.failed = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                              absl::StrFormat("deployment %s is not being deleted; 'syctl delete "
                                              "deployment %s' does that",
                                              deployment.spec().name(), deployment.spec().name()));
    } else if (deployment.sessions() > 0) {
      look.still = absl::StrCat("open: ", CountText(deployment.sessions(), "session"));
    }
    return look;
  }
  // An apply that is read comes in the place of what is current.
  const bool comes = deployment.has_reading() && !deployment.reading().dry_run();
  const bool goes = deployment.state() == v1::DEPLOYMENT_STATE_DELETING;
  look.done = deployment.current() && !comes && !goes;
  look.failed = RefusalOf(deployment);
  if (deployment.has_apply_failure()) look.failed = StatusFromProto(deployment.apply_failure());
  if (comes) look.failed = absl::OkStatus();
  if (goes) {
    look.failed =
        MakeError(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                  absl::StrCat("deployment ", deployment.spec().name(), " is being deleted"));
  }
  return look;
}

// The duty is stored, so only an epoch that was begun before can still take the worker in.
Look LookAtCordoned(const v1::Worker& worker) {
  Look look;
  if (worker.state() == v1::WORKER_STATE_LIVE) {
    look.failed =
        MakeError(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                  absl::StrFormat("worker %s is not cordoned any more; somebody has uncordoned it",
                                  worker.id()));
    return look;
  }
  look.done = worker.staging().empty();
  if (!look.done) {
    look.still = absl::StrFormat("it loads %s", CountText(worker.staging_size(), "epoch"));
  }
  return look;
}

Look LookAt(const v1::Worker& worker, Condition condition) {
  if (condition == Condition::kCordoned) return LookAtCordoned(worker);
  Look look;
  const std::string wanted = condition == Condition::kLive ? "live" : "drained";
  const std::string word = EnumWord(worker.state());
  look.done = word == wanted;
  look.still = worker.problem().empty() ? word : absl::StrCat(word, ": ", worker.problem());
  const bool stays = worker.state() == v1::WORKER_STATE_CORDONED ||
                     worker.state() == v1::WORKER_STATE_DRAINING ||
                     worker.state() == v1::WORKER_STATE_DRAINED;
  if (condition == Condition::kLive && stays) {
    absl::StrAppendFormat(&look.still, "; 'syctl uncordon worker %s' makes it live", worker.id());
  }
  const bool drains =
      worker.state() == v1::WORKER_STATE_DRAINING || worker.state() == v1::WORKER_STATE_LEAVING;
  if (condition == Condition::kDrained &&
      (worker.state() == v1::WORKER_STATE_LIVE || worker.state() == v1::WORKER_STATE_CORDONED)) {
    look.failed = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                            absl::StrFormat("worker %s is not being drained; 'syctl drain worker "
                                            "%s' does that",
                                            worker.id(), worker.id()));
  } else if (drains) {
    look.still =
        absl::StrFormat("%s; it holds %s", word, CountText(worker.resident_size(), "epoch"));
  }
  return look;
}

// A worker that was drained and is not there. After a restart the coordinator lists workers as they
// come back, and its plans name those that it waits for.
Look LookAtGone(CoordinatorClient& coordinator, const std::string& worker) {
  const auto deployments = coordinator.Deployments();
  if (!deployments.ok()) return LookOfError(deployments.status());
  for (const v1::Deployment& deployment : deployments->deployments()) {
    if (deployment.committed_epoch() == 0) continue;
    const std::string& name = deployment.spec().name();
    const auto plan = coordinator.Plan(name);
    if (absl::IsNotFound(plan.status())) continue;  // deleted since
    if (!plan.ok()) return LookOfError(plan.status());
    for (const v1::PlanWorker& planned : plan->plan().workers()) {
      if (planned.id() != worker) continue;
      return {.still =
                  absl::StrFormat("it is not there, and the plan of deployment %s names it", name)};
    }
  }
  return {.done = true};
}

}  // namespace

void Pause() { SleepUntil(std::chrono::steady_clock::now() + kEvery); }

absl::Status RefusalOf(const v1::Deployment& deployment) {
  if (!deployment.has_problem()) return absl::OkStatus();
  const absl::Status problem = StatusFromProto(deployment.problem());
  switch (ReasonOf(problem)) {
    case Reason::kBadConfig:
    case Reason::kBadTopK:
    case Reason::kUnsupported:
      return problem;
    default:
      return absl::OkStatus();
  }
}

absl::Status WaitForDeployment(const Waiting& waiting, const std::string& name, Condition condition,
                               v1::Deployment* found) {
  bool deleting = waiting.agreed;
  return Wait(waiting, absl::StrCat("deployment ", name), [&]() -> Look {
    const auto answer = waiting.coordinator->Deployment(name);
    if (answer.ok()) {
      if (found != nullptr) *found = answer->deployment();
      const bool goes = answer->deployment().state() == v1::DEPLOYMENT_STATE_DELETING;
      if (condition == Condition::kDeleted && deleting && !goes) return {.done = true};
      deleting = goes;
      return LookAt(answer->deployment(), condition);
    }
    if (condition == Condition::kDeleted && absl::IsNotFound(answer.status())) {
      return {.done = true};
    }
    return LookOfError(answer.status());
  });
}

absl::Status WaitForWorker(const Waiting& waiting, const std::string& id, Condition condition,
                           v1::Worker* found) {
  bool seen = waiting.agreed;
  return Wait(waiting, absl::StrCat("worker ", id), [&]() -> Look {
    const auto workers = waiting.coordinator->Workers();
    if (!workers.ok()) return LookOfError(workers.status());
    for (const v1::Worker& worker : workers->workers()) {
      if (worker.id() != id) continue;
      seen = true;
      if (found != nullptr) *found = worker;
      return LookAt(worker, condition);
    }
    if (condition == Condition::kCordoned) return {.done = true};
    if (condition == Condition::kLive) return {.still = "it has not joined"};
    if (seen) return LookAtGone(*waiting.coordinator, id);
    return {.failed = MakeError(absl::StatusCode::kNotFound, Reason::kUnknownWorker,
                                absl::StrFormat("there is no worker \"%s\"; 'syctl get workers' "
                                                "lists them",
                                                id),
                                {{"worker", id}})};
  });
}

}  // namespace switchyard::ctl
