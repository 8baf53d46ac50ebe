// Applies in progress, dry or not, and rollbacks.
//
//   request --> the checkpoint's headers are checked
//           --> its weights are read and hashed ----------------------------------.
//                 `--(kApplyAnswer later)--> the request is stored --> answered    |
//                                                                                 v
//   answered, unless it was before <-- record and revision are written <-- read ---'
//
// An error that headers show is the answer. Weights can take minutes to read: the
// answer then comes before, once the store has the request, so that a restart goes on with it. What
// goes wrong afterwards is in the view and the journal. A dry run needs the headers only, unless it
// is to hash the weights; a rollback reads nothing, because its revision has what was read then.
// Not thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deletions.h"
#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/history/failed_applies.h"
#include "coordinator/history/revisions.h"
#include "coordinator/progress/rate_meter.h"
#include "coordinator/session_table.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/view.h"
#include "core/base/clock.h"

namespace switchyard {

// With the write of the request and the caller's own process, an apply returns well within a tenth
// of a second. Those that are read sooner cost no second write.
inline constexpr Duration kApplyAnswer = std::chrono::milliseconds(20);

class Applies {
 public:
  using Deployments = std::map<std::string, DeploymentController>;

  // All outlive it. What is applied is added to `deployments`, or changed there.
  Applies(const ControllerContext* context, Deployments* deployments, Deletions* deletions,
          const SessionTable* sessions)
      : context_(context),
        deployments_(deployments),
        deletions_(deletions),
        sessions_(sessions),
        failed_(context->options->max_deployments) {}
  // Goes on with what the store has, once, after the deployments of the store are there.
  void Resume(const std::vector<DeploymentSpec>& specs, TimePoint now);

  void On(const ApplyRequested& event, TimePoint now);
  void On(const RollbackRequested& event, TimePoint now);
  void On(const ModelChecked& event, TimePoint now);
  void On(const ModelProgress& event, TimePoint now);
  void On(const ModelLoaded& event, TimePoint now);
  // Stores requests that take their time.
  void OnTick(TimePoint now);
  // When OnTick has something to do next; max: nothing, as far as is known.
  [[nodiscard]] TimePoint NextDue() const;
  // False when the write is not one of an apply.
  bool OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now);

  // An apply of it runs, dry or not.
  [[nodiscard]] bool IsRunning(const std::string& deployment) const;
  // An operator deletes it: ends the applies of it that were answered, and forgets one that failed.
  // True when there was one.
  bool Cancel(const std::string& deployment);
  // The name of a deployment that is being applied and that `matches`; empty: none is.
  template <typename Matches>
  [[nodiscard]] std::string Find(Matches matches) const {
    for (const auto& [id, apply] : applies_) {
      if (matches(apply.spec)) return apply.spec.name;
    }
    return "";
  }
  // Adds them to the view, in rows of their own where the deployment does not exist so far.
  void AddTo(CoordinatorView* view, TimePoint now) const;

 private:
  struct Apply {
    DeploymentSpec spec = {};
    bool dry_run = false;
    bool hash_weights = false;
    TimePoint begun = {};
    // Its headers are; and why no kind of worker could serve it.
    bool checked = false;
    absl::Status refusal = {};
    // The request is sent to the store, and durable.
    WriteId request_write = {};
    bool durable = false;
    bool answered = false;
    // Set once the checkpoint is read.
    DeploymentRecord record = {};
    // Set once the record is sent to the store: with the new one.
    Revisions revisions = Revisions();
    WriteId write = {};
    // How far the checkpoint is read, and when the log says so next.
    RateMeter read = {};
    std::int64_t bytes = 0;
    TimePoint log_at = {};
  };

  // One that was answered, and whose checkpoint is being read. Null: none is.
  [[nodiscard]] const Apply* FindAnswered(const DeploymentSpec& spec) const;
  // Adds those that failed, in rows of their own where the deployment does not exist.
  void AddFailedTo(CoordinatorView* view) const;
  // It is checked, and its request is not sent to the store.
  [[nodiscard]] static bool MayBeStored(const Apply& apply) {
    return apply.checked && !apply.durable && apply.request_write == WriteId{};
  }
  static ReadingView ReadingOf(const Apply& apply, TimePoint now);
  // Ends applies of that name that were answered, except `by`: a newer request takes their place.
  bool Supersede(const std::string& deployment, RequestId by);
  // Whether there is room to read another one.
  [[nodiscard]] absl::Status CheckRoom() const;
  // Whether a dry one may start now.
  [[nodiscard]] absl::Status CheckDryRun(const DeploymentSpec& spec) const;
  // The same of one that is not dry.
  [[nodiscard]] absl::Status Check(const DeploymentSpec& spec) const;
  // `apply` has its record. Writes it as a new revision, unless it is the deployment's already.
  // `rollback_to`: of Revision.
  void Put(RequestId id, Apply apply, std::uint64_t rollback_to, TimePoint now);
  void Finish(RequestId id, const Apply& apply, TimePoint now);
  // It cannot go on. Answers, or notes the failure where that was done before.
  void Fail(RequestId id, const Apply& apply, const absl::Status& why, TimePoint now);
  // Nothing, if it was answered before.
  void Answer(RequestId id, const Apply& apply, absl::StatusOr<DeploymentView> result);
  // A restart goes on with it once that is written.
  void StoreRequest(Apply* apply);
  // The store need not go on with it. After PutDeployment this is done.
  void EndRequest(const Apply& apply);
  // Deletes the oldest refused deployments where there are more than max_deployments.
  void DropRefused(TimePoint now);
  // Returns what the view says while it is read.
  [[nodiscard]] DeploymentView EarlyView(const Apply& apply, TimePoint now) const;
  [[nodiscard]] DeploymentView ViewOf(const DeploymentController& controller, TimePoint now) const;
  [[nodiscard]] DeploymentController* ControllerOf(const std::string& deployment) const;

  const ControllerContext* context_;
  Deployments* deployments_;
  Deletions* deletions_;
  const SessionTable* sessions_;
  FailedApplies failed_;
  std::map<RequestId, Apply> applies_;
};

}  // namespace switchyard
