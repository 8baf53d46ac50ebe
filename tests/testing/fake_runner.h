// A StepRunner without workers: the test's function computes y, when the test lets steps end.
// Serialized by its Source as every runner; `Block` and the counters are for any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "worker/source/session_channel.h"
#include "worker/source/step_runner.h"

namespace switchyard::testing {

// What all runners of one Source share, and the test holds.
class FakeSteps {
 public:
  using Compute =
      std::function<absl::Status(const SessionGrant& grant, const StepRequest& request)>;

  explicit FakeSteps(Compute compute_y) : compute(std::move(compute_y)) {}

  // Steps are done only while they are not blocked.
  void Block(bool blocked) {
    blocked_ = blocked;
    const std::lock_guard lock(mutex_);
    for (const auto& wake : wakes_) wake();
  }
  [[nodiscard]] bool blocked() const { return blocked_; }
  void Submitted() {
    const std::lock_guard lock(mutex_);
    ++submitted;
    changed_.notify_all();
  }
  bool WaitForSubmitted(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return submitted >= count; });
  }
  void OnOpen(const std::function<void()>& wake) {
    const std::lock_guard lock(mutex_);
    wakes_.push_back(wake);
    ++opened_;
    ++open_;
  }
  void OnClose() {
    const std::lock_guard lock(mutex_);
    --open_;
    changed_.notify_all();
  }
  bool WaitUntilAllClosed() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return opened_ > 0 && open_ == 0; });
  }

  const Compute compute;
  // Set before the first session; may be empty.
  std::function<absl::Status(const SessionGrant& grant)> start;
  // Both set before the first step; may be empty.
  std::function<bool(const StepRequest& request)> held;
  std::function<bool(const SessionGrant& grant)> put_off;
  std::atomic<int> submitted = 0;
  std::atomic<int> polled = 0;
  std::atomic<bool> awaits_device = false;
  std::atomic<std::int32_t> device_tokens_min = 0;  // of every layer's limits

 private:
  std::atomic<bool> blocked_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::function<void()>> wakes_;
  int opened_ = 0;
  int open_ = 0;
};

class FakeRunner final : public StepRunner {
 public:
  // `refuse` is what Submit says to a request; OK: it is taken.
  using Refuse = std::function<absl::Status(const StepRequest& request)>;

  FakeRunner(FakeSteps* steps, SessionGrant grant, const std::function<void()>& wake, Refuse refuse)
      : steps_(steps), grant_(std::move(grant)), refuse_(std::move(refuse)) {
    steps_->OnOpen(wake);
  }

  absl::Status Start(TimePoint /*now*/) override {
    return steps_->start ? steps_->start(grant_) : absl::OkStatus();
  }
  void OnPlan(const PlanUpdate& update, TimePoint /*now*/) override { grant_.plan = update.plan; }
  RunnerProgress Poll(TimePoint /*now*/) override {
    ++steps_->polled;
    RunnerProgress progress;
    progress.state = RunnerProgress::State::kReady;
    return progress;
  }
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint /*now*/) override {
    if (refuse_) {
      if (const absl::Status refused = refuse_(request); !refused.ok()) return refused;
    }
    requests_[++last_] = request;
    steps_->Submitted();
    return StepTicket{last_, 1};
  }
  [[nodiscard]] bool awaits_device() const override { return steps_->awaits_device; }
  [[nodiscard]] bool put_off() const override { return steps_->put_off && steps_->put_off(grant_); }
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override {
    const auto it = requests_.find(ticket.slot);
    if (it == requests_.end()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder, "used");
    }
    return !steps_->blocked() && !(steps_->held && steps_->held(it->second));
  }
  absl::Status Take(const StepTicket& ticket, TimePoint /*now*/) override {
    const auto it = requests_.find(ticket.slot);
    const StepRequest request = it->second;
    requests_.erase(it);
    return steps_->compute(grant_, request);
  }
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId /*layer*/) const override {
    return StepLimits{.shape = grant_.plan.shape,
                      .step_deadline = std::chrono::seconds(20),
                      .device_tokens_min = steps_->device_tokens_min};
  }
  void Close(TimePoint /*now*/) override {
    if (!std::exchange(closed_, true)) steps_->OnClose();
  }
  [[nodiscard]] Epoch epoch() const override { return grant_.plan.epoch; }
  [[nodiscard]] RunnerStatus Status() const override {
    RunnerStatus status;
    status.grant = grant_;
    status.epoch = grant_.plan.epoch;
    return status;
  }

 private:
  FakeSteps* const steps_;
  SessionGrant grant_;
  const Refuse refuse_;
  std::map<std::uint32_t, StepRequest> requests_;
  std::uint32_t last_ = 0;
  bool closed_ = false;
};

// A coordinator that grants every session, or none.
class GrantingChannel final : public SessionChannel {
 public:
  using Decide = std::function<absl::StatusOr<SessionGrant>(const OpenSessionRequest& request)>;

  explicit GrantingChannel(Decide decide) : decide_(std::move(decide)) {}

  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                           Duration /*timeout*/) override {
    return decide_(request);
  }
  absl::Status CloseSession(SessionId /*session*/, Duration /*timeout*/) override {
    return absl::OkStatus();
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& /*request*/, WatchSink* sink) override {
    watch = sink;
    return std::make_unique<WatchStream>();
  }
  std::unique_ptr<AttachStream> Attach(const std::string& /*endpoint*/,
                                       const AttachRequest& /*request*/,
                                       AttachSink* /*sink*/) override {
    return nullptr;
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& /*endpoint*/,
                                              SessionId /*session*/,
                                              Duration /*timeout*/) override {
    return absl::UnimplementedError("no workers");
  }

  WatchSink* watch = nullptr;  // of the newest watch

 private:
  const Decide decide_;
};

}  // namespace switchyard::testing
