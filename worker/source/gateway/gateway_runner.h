// The runner of the gateway binding: steps as bytes over one stream to a worker that is the source
// on this process's behalf, for a process without a transport of its own.
//
// Start opens the stream, and the gateway answers with the grant; it follows the plans, so OnPlan
// does nothing. When the gateway says that it leaves, Poll opens a stream through another one, on
// which steps go from then on, while the former ends its steps. When a gateway is lost, its steps
// fail, later ones are refused until another gateway has opened the session, and a caller repeats
// both. A caller's rows are copied into the message by Submit; y is written by the channel's thread
// when the answer arrives, which is why this runner has a mutex of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/source/gateway/gateway_choice.h"
#include "worker/source/step_channel.h"
#include "worker/source/step_runner.h"
#include "worker/source/step_validation.h"

namespace switchyard {

// The options; the grant is missing, because the gateway gives it.
struct GatewayRunnerOptions {
  StepChannel* steps = nullptr;       // outlives the runner
  std::vector<std::string> gateways;  // "host:port", at least one, in the order of preference
  OpenSessionRequest request;
  std::function<void()> wake;  // from any thread: Poll is due
};

class GatewayRunner final : public StepRunner {
 public:
  // Opens nothing yet: the channel may call the sink from within Open.
  explicit GatewayRunner(GatewayRunnerOptions options);
  ~GatewayRunner() override;

  // Opens the stream. Never fails: a refusal comes with Poll.
  absl::Status Start(TimePoint now) override;
  void OnPlan(const PlanUpdate& /*update*/, TimePoint /*now*/) override {}
  // Reports kOpening with kUnavailable (TRANSPORT) until a gateway has answered; kFailed with the
  // refusal of the last one.
  RunnerProgress Poll(TimePoint now) override;
  // Also kInvalidArgument (MESSAGE_TOO_LARGE); kUnavailable (WORKER_LOST) between two gateways;
  // kFailedPrecondition (MODEL_CHANGED) when the next one serves another model.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) override;
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override;
  absl::Status Take(const StepTicket& ticket, TimePoint now) override;
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const override;
  void Close(TimePoint now) override;
  [[nodiscard]] Epoch epoch() const override;
  [[nodiscard]] RunnerStatus Status() const override;

 private:
  class Lane;  // a stream to one gateway
  using Lanes = std::vector<std::unique_ptr<Lane>>;
  // A step from Submit to Take.
  struct Pending {
    Lane* lane = nullptr;  // while it is in flight
    StepRequest request;
    std::optional<absl::Status> result;  // unset: in flight
    TimePoint give_up_at{};              // its deadline, and time for the way there and back
  };

  // From the channel's threads.
  void OnOpened(Lane& lane, const GatewayGrant& grant) SY_EXCLUDES(mutex_);
  void OnNews(Lane& lane, const GatewayNews& news) SY_EXCLUDES(mutex_);
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y)
      SY_EXCLUDES(mutex_);
  void OnEnded(Lane& lane, const absl::Status& why) SY_EXCLUDES(mutex_);

  // Opens a stream through the next gateway.
  void OpenNext(TimePoint now) SY_EXCLUDES(mutex_);
  // Looks at what has become of the stream that is being opened.
  bool SettleOpening(TimePoint now) SY_REQUIRES(mutex_);
  // Is OK if the session can go on with `next`: the same model, the same y.
  [[nodiscard]] absl::Status CheckContinues(const GatewayGrant& next) const SY_REQUIRES(mutex_);
  // The gateway of opening_ has failed; another one may be better.
  void TryAnother(const absl::Status& why, TimePoint now) SY_REQUIRES(mutex_);
  // Takes the streams that nobody needs any more; to be destroyed without the mutex.
  Lanes TakeUnused() SY_REQUIRES(mutex_);
  [[nodiscard]] bool MustOpen(TimePoint now) const SY_REQUIRES(mutex_);
  bool EndOverdue(TimePoint now) SY_REQUIRES(mutex_);
  [[nodiscard]] TimePoint WakeAt() const SY_REQUIRES(mutex_);

  // Errors: kNotFound (UNKNOWN_LAYER).
  [[nodiscard]] absl::StatusOr<StepLimits> KnownLimits(LayerId layer) const SY_REQUIRES(mutex_);
  [[nodiscard]] std::size_t RowBytesOfY() const SY_REQUIRES(mutex_);
  // Scatters dense rows into the caller's strided y.
  void WriteY(const StepRequest& request, std::span<const std::byte> y) const SY_REQUIRES(mutex_);
  // The steps in flight on `lane` end with `why`; nullptr: on any.
  void EndSteps(const Lane* lane, const absl::Status& why) SY_REQUIRES(mutex_);
  // Is OK while steps can be sent.
  [[nodiscard]] absl::Status WhyNotReady() const SY_REQUIRES(mutex_);

  // Copies the batch into one message: the message is dense, the caller's rows may have strides.
  absl::Status Send(StepStream& stream, StepId step, const StepRequest& request,
                    std::int32_t hidden) SY_EXCLUDES(mutex_);

  const GatewayRunnerOptions options_;
  // Held for one copy of y at most, and never while the channel or `wake` is called.
  mutable Mutex mutex_;
  Lanes lanes_ SY_GUARDED_BY(mutex_);
  Lane* current_ SY_GUARDED_BY(mutex_) = nullptr;  // takes new steps; of lanes_
  Lane* opening_ SY_GUARDED_BY(mutex_) = nullptr;  // of lanes_
  GatewayChoice choice_ SY_GUARDED_BY(mutex_);
  std::size_t refused_ SY_GUARDED_BY(mutex_) = 0;  // attempts in a row
  TimePoint open_at_ SY_GUARDED_BY(mutex_){};      // not before
  Duration pause_ SY_GUARDED_BY(mutex_){};
  absl::Status obstacle_ SY_GUARDED_BY(mutex_);             // why there is no current stream
  std::optional<absl::Status> over_ SY_GUARDED_BY(mutex_);  // the session has ended, and why
  // The last gateway that opened the session gave it.
  std::optional<GatewayGrant> grant_ SY_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Pending> pending_ SY_GUARDED_BY(mutex_);  // by the number of the step
  std::uint64_t last_step_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
