// A session's watch at the coordinator: hands each newly committed plan to the session's runner.
//
// A watch that breaks is dialed again with back-off, naming the plan that steps run on, so that a
// coordinator that restarted knows the session by it. Steps need no watch: without a coordinator
// they go on. One thread; the channel's threads only leave events behind and call `wake`.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/session_messages.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_runner.h"

namespace switchyard {

class PlanWatch final : private WatchSink {
 public:
  // `channel` outlives the watch. Dials at once, for the granted plan.
  PlanWatch(SessionChannel* channel, const SessionGrant& grant, std::function<void()> wake);
  ~PlanWatch() override;

  // Passes plans on to `runner` and dials again when it is time. True when it did anything.
  bool Poll(StepRunner& runner, TimePoint now);
  // False while the watch is broken.
  [[nodiscard]] bool watching() const { return !retry_at_.has_value(); }
  // The reason why the coordinator does not know the session any more, after which no plan can
  // come. OK while it may.
  [[nodiscard]] const absl::Status& refused() const { return refused_; }
  // When to poll again; max() while the watch stands.
  [[nodiscard]] TimePoint wake_at() const { return retry_at_.value_or(TimePoint::max()); }

 private:
  // From the channel's threads.
  void OnPlan(const PlanUpdate& update) override;
  void OnWatchEnded(const absl::Status& why) override;
  // Starts a watch that names this plan, in place of the one before.
  void Dial(Epoch epoch, const PlanHash& hash);

  SessionChannel* const channel_;
  const std::function<void()> wake_;
  WatchRequest request_;
  std::optional<TimePoint> retry_at_;
  Duration backoff_{};  // before the last retry; a plan resets it
  absl::Status refused_;

  Mutex mutex_;
  // The newest plan that was not passed on.
  std::optional<PlanUpdate> update_ SY_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ SY_GUARDED_BY(mutex_);

  std::unique_ptr<WatchStream> stream_;  // last: it calls this object until it is gone
};

}  // namespace switchyard
