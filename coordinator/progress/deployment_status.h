// The status of a deployment: its current work and its problem, for operators and for sources that
// want to open sessions. Not thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

#include "core/ids.h"

namespace switchyard {

// The activity of a refused deployment.
inline constexpr char kRefusedActivity[] =
    "refused: this configuration can never be served; fix it and apply it again";

class DeploymentStatus {
 public:
  // After every change of the record. `refusal`: why no kind of worker could serve it; OK: some
  // could.
  void SetRecord(const absl::Status& refusal);
  // No plan is possible until the record or the members change. `is_refusal`: other workers like
  // them would not help (coordinator/refusal.h). In this and the next one `of_record` is false for
  // a plan of an earlier revision, which is served on because the record is refused: that stays the
  // problem.
  void SetNoPlan(const absl::Status& why, bool is_refusal, bool of_record);
  void SetServing(Epoch epoch, bool of_record);
  void SetActivity(std::string activity) { activity_ = std::move(activity); }
  // A problem that ends by itself.
  void SetProblem(const absl::Status& problem) { problem_ = problem; }
  void SetGivenUp(Epoch epoch, const absl::Status& why);

  // Whether the refusal is news: true once for each record, and again after it has served. Each
  // change of the members finds the same refusal anew.
  [[nodiscard]] bool TakeRefusalNews() { return refused() && !std::exchange(refusal_told_, true); }

  // Why no kind of worker could serve the record; OK: some kind could.
  [[nodiscard]] const absl::Status& refusal() const { return refusal_; }
  // The record can be served by no workers, or by none like those that there are.
  [[nodiscard]] bool refused() const { return !refusal_.ok() || no_plan_is_refusal_; }
  [[nodiscard]] const std::string& activity() const { return activity_; }
  // Why it does not serve, or why the last change failed.
  [[nodiscard]] const absl::Status& problem() const { return problem_; }
  // The error for a session that cannot open now. `doing`: a change in progress; empty: the
  // activity.
  [[nodiscard]] absl::Status WhyNotServing(const std::string& deployment,
                                           const std::string& doing) const;

 private:
  std::string activity_ = "waiting for workers";
  absl::Status problem_;
  absl::Status refusal_;
  bool no_plan_is_refusal_ = false;
  bool refusal_told_ = false;
};

}  // namespace switchyard
