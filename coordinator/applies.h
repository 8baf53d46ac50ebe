// Applies in progress, dry or not, and rollbacks.
//
//   request --> its checkpoint is read --> record and revision are written --> answered
//
// Answered only after the write, so that an applied deployment survives a restart. A dry run ends
// once the checkpoint is read; a rollback reads none, because its revision has what was read then.
// Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deletions.h"
#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/history/revisions.h"
#include "coordinator/progress/rate_meter.h"
#include "coordinator/session_table.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/view.h"
#include "core/base/clock.h"

namespace switchyard {

class Applies {
 public:
  using Deployments = std::map<std::string, DeploymentController>;

  // All outlive it. What is applied is added to `deployments`, or changed there.
  Applies(const ControllerContext* context, Deployments* deployments, Deletions* deletions,
          const SessionTable* sessions)
      : context_(context), deployments_(deployments), deletions_(deletions), sessions_(sessions) {}

  void On(const ApplyRequested& event, TimePoint now);
  void On(const RollbackRequested& event, TimePoint now);
  void On(const ModelProgress& event, TimePoint now);
  void On(const ModelLoaded& event, TimePoint now);
  // False when the write is not one of an apply.
  bool OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now);

  // An apply of it runs, dry or not.
  [[nodiscard]] bool IsRunning(const std::string& deployment) const;
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
    DeploymentSpec spec;
    bool dry_run = false;
    TimePoint began = {};
    // Set once the checkpoint is read.
    DeploymentRecord record;
    // Set once the record is sent to the store: with the new one.
    Revisions revisions = Revisions();
    WriteId write = {};
    // How far the checkpoint is read.
    RateMeter read = {};
    std::int64_t bytes = 0;
  };

  // Ends it, successfully or not.
  void Answer(RequestId id, const Apply& apply, absl::StatusOr<DeploymentView> answer,
              TimePoint now);
  // Whether it may start now.
  [[nodiscard]] absl::Status Check(const DeploymentSpec& spec) const;
  // `apply` has its record. Writes it as a new revision, unless it is the deployment's already.
  // `rollback_to`: of Revision.
  void Put(RequestId id, Apply apply, std::uint64_t rollback_to, TimePoint now);
  void Finish(RequestId id, const Apply& apply, TimePoint now);
  // Deletes the oldest refused deployments where there are more than max_deployments.
  void DropRefused(TimePoint now);
  // The answer to a dry run.
  [[nodiscard]] DeploymentView Preview(const DeploymentRecord& record, TimePoint now) const;
  [[nodiscard]] DeploymentView ViewOf(const DeploymentController& controller, TimePoint now) const;
  [[nodiscard]] DeploymentController* ControllerOf(const std::string& deployment) const;

  const ControllerContext* context_;
  Deployments* deployments_;
  Deletions* deletions_;
  const SessionTable* sessions_;
  std::map<RequestId, Apply> applies_;
};

}  // namespace switchyard
