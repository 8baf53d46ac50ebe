// The runner of the gateway binding: steps as bytes over one stream to a worker that is the source
// on this process's behalf, for a process without a transport of its own.
//
// Start opens the stream, and the gateway answers with the grant. The gateway follows the plans, so
// OnPlan does nothing. A caller's rows are copied into the message by Submit; y is written by the
// channel's thread when the answer arrives, which is why this runner has a mutex of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/source/step_channel.h"
#include "worker/source/step_runner.h"
#include "worker/source/step_validation.h"

namespace switchyard {

// The options; the grant is missing, because the gateway gives it.
struct GatewayRunnerOptions {
  StepChannel* steps = nullptr;  // outlives the runner
  OpenSessionRequest request;
  std::function<void()> wake;  // from any thread: Poll is due
};

class GatewayRunner final : public StepRunner, private StepSink {
 public:
  // Opens nothing yet: the channel may call the sink from within Open.
  explicit GatewayRunner(GatewayRunnerOptions options);
  ~GatewayRunner() override;

  // Opens the stream. Never fails: a refusal comes with Poll.
  absl::Status Start(TimePoint now) override;
  void OnPlan(const PlanUpdate& /*update*/, TimePoint /*now*/) override {}
  // Reports kOpening with kUnavailable (TRANSPORT) until the gateway has answered; kFailed with its
  // refusal.
  RunnerProgress Poll(TimePoint now) override;
  // Also kInvalidArgument (MESSAGE_TOO_LARGE); after the end of the stream, the reason for it.
  absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) override;
  [[nodiscard]] absl::StatusOr<bool> IsDone(const StepTicket& ticket) const override;
  absl::Status Take(const StepTicket& ticket, TimePoint now) override;
  void Close(TimePoint now) override;
  [[nodiscard]] RunnerStatus Status() const override;

 private:
  // A step from Submit to Take.
  struct Pending {
    StepRequest request;
    std::optional<absl::Status> result;  // unset: in flight
    TimePoint give_up_at{};              // its deadline, and time for the way there and back
  };

  // From the channel's thread.
  void OnOpened(const GatewayGrant& grant) override;
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) override;
  void OnEnded(const absl::Status& why) override;

  // Errors: kNotFound (UNKNOWN_LAYER).
  [[nodiscard]] absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const SY_REQUIRES(mutex_);
  [[nodiscard]] std::size_t RowBytesOfY() const SY_REQUIRES(mutex_);
  // Scatters dense rows into the caller's strided y.
  void WriteY(const StepRequest& request, std::span<const std::byte> y) const SY_REQUIRES(mutex_);
  // No step is answered any more: those in flight end with `why`.
  void EndAll(const absl::Status& why) SY_REQUIRES(mutex_);
  // REQUIRES: end_. What a step gets that comes too late.
  [[nodiscard]] absl::Status WhyEnded() const SY_REQUIRES(mutex_);

  // Copies the batch into one message: the message is dense, the caller's rows may have strides.
  absl::Status Send(StepId step, const StepRequest& request, std::int32_t hidden)
      SY_EXCLUDES(mutex_);

  const GatewayRunnerOptions options_;
  // Held for one copy of y at most, and never while the channel or `wake` is called.
  mutable Mutex mutex_;
  std::optional<GatewayGrant> grant_ SY_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Pending> pending_ SY_GUARDED_BY(mutex_);  // by the number of the step
  std::uint64_t last_step_ SY_GUARDED_BY(mutex_) = 0;
  // The stream has ended, and why.
  std::optional<absl::Status> end_ SY_GUARDED_BY(mutex_);

  // Not guarded: only the thread that drives the runner uses it. Last: it calls this object until
  // it is gone.
  std::unique_ptr<StepStream> stream_;
};

}  // namespace switchyard
