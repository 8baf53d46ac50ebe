#include "worker/source/gateway/gateway_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Beyond the step's own deadline, which the gateway enforces: for the way there and back.
constexpr Duration kGatewaySlack = std::chrono::seconds(2);

absl::Status UsedTicket() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                   "the step is already complete or was never submitted; submit it again");
}

// Steps are numbered without gaps, and a ticket is the number in two halves.
StepTicket TicketOf(std::uint64_t step) {
  return {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32U)};
}
std::uint64_t StepOf(const StepTicket& ticket) {
  return (static_cast<std::uint64_t>(ticket.generation) << 32U) | ticket.slot;
}

}  // namespace

GatewayRunner::GatewayRunner(GatewayRunnerOptions options) : options_(std::move(options)) {}

GatewayRunner::~GatewayRunner() = default;

absl::Status GatewayRunner::Start(TimePoint /*now*/) {
  // Not under the mutex: the channel may call the sink from within Open.
  stream_ = options_.steps->Open(options_.request, this);
  return absl::OkStatus();
}

void GatewayRunner::OnOpened(const GatewayGrant& grant) {
  {
    const MutexLock lock(mutex_);
    grant_ = grant;
    // The gateway's own grant is p2p; seen from here its steps go through the gateway.
    grant_->grant.binding = Binding::kGateway;
  }
  options_.wake();
}

void GatewayRunner::OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) {
  {
    // y is written under the mutex, under which Take removes the step: nothing writes to the
    // caller's memory once Take has returned.
    const MutexLock lock(mutex_);
    const auto it = pending_.find(step.value);
    // Unknown: the caller has given the step up.
    if (it == pending_.end() || it->second.result.has_value()) return;
    const StepRequest& request = it->second.request;
    const std::size_t expected = static_cast<std::size_t>(request.tokens) * RowBytesOfY();
    it->second.result = status;
    if (status.ok() && y.size() != expected) {
      it->second.result = MakeError(
          absl::StatusCode::kInternal, Reason::kFrame,
          absl::StrCat("the gateway answered with ", y.size(), " bytes instead of ", expected));
    } else if (status.ok()) {
      WriteY(request, y);
    }
  }
  options_.wake();
}

void GatewayRunner::OnEnded(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    // The gateway ends a stream without an error when it shuts down.
    EndAll(why.ok() ? MakeError(absl::StatusCode::kUnavailable, Reason::kSessionClosed,
                                "the gateway has closed the session; open another")
                    : why);
  }
  options_.wake();
}

void GatewayRunner::EndAll(const absl::Status& why) {
  end_ = why;
  for (auto& [step, pending] : pending_) {
    if (!pending.result.has_value()) pending.result = why;
  }
}

absl::Status GatewayRunner::WhyEnded() const {
  // An outage, which a caller would wait out; but this stream does not come back.
  if (!grant_.has_value() || !absl::IsUnavailable(*end_)) return *end_;
  return MakeError(absl::StatusCode::kUnavailable, Reason::kSessionClosed,
                   absl::StrCat("the session through the gateway has ended (", end_->message(),
                                "); open another, through this gateway or another one"));
}

std::size_t GatewayRunner::RowBytesOfY() const {
  const std::size_t element = grant_->grant.request.y_dtype == OutputDtype::kBf16 ? 2 : 4;
  return static_cast<std::size_t>(grant_->grant.plan.shape.hidden) * element;
}

void GatewayRunner::WriteY(const StepRequest& request, std::span<const std::byte> y) const {
  const std::size_t row = RowBytesOfY();
  const auto hidden = static_cast<std::size_t>(grant_->grant.plan.shape.hidden);
  auto* out = static_cast<std::byte*>(request.y);
  for (std::size_t t = 0; t < static_cast<std::size_t>(request.tokens); ++t) {
    std::memcpy(out + t * static_cast<std::size_t>(request.y_stride) * (row / hidden),
                y.data() + t * row, row);
  }
}

RunnerProgress GatewayRunner::Poll(TimePoint now) {
  const MutexLock lock(mutex_);
  RunnerProgress progress;
  if (grant_.has_value()) {
    // An opened session stays ready when its stream ends: Submit gives the reason.
    progress.state = RunnerProgress::State::kReady;
  } else if (end_.has_value()) {
    progress.state = RunnerProgress::State::kFailed;
    progress.why = *end_;
  } else {
    progress.why = MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                             "the gateway did not open the session in time; is it reachable?");
  }
  for (auto& [step, pending] : pending_) {
    if (pending.result.has_value()) continue;
    if (pending.give_up_at <= now) {
      pending.result = MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline,
                                 "the gateway did not answer the step in time; retry", {});
      progress.worked = true;
    } else {
      progress.wake_at = std::min(progress.wake_at, pending.give_up_at);
    }
  }
  return progress;
}

// The gateway validates too. Doing it here first saves the way there for a request that is wrong.
absl::StatusOr<StepLimits> GatewayRunner::LimitsOf(LayerId layer) const {
  const SessionGrant& grant = grant_->grant;
  const bool known = std::any_of(grant.plan.layers.begin(), grant.plan.layers.end(),
                                 [layer](const LayerPlacement& row) { return row.layer == layer; });
  if (!known) return UnknownLayer(grant.plan, layer);
  DispatchMode mode = grant.request.mode.value_or(DispatchMode::kNormal);
  std::int32_t plan_max = 0;
  for (const DispatchConfig& config : grant.plan.configs) {
    if (config.layer != layer || config.phase != grant.request.phase) continue;
    mode = grant.request.mode.value_or(config.mode);
    // The least of the edges: a step is one batch for all of them.
    const std::int32_t edge_max = config.max_tokens_per_step;
    if (edge_max > 0) plan_max = plan_max == 0 ? edge_max : std::min(plan_max, edge_max);
  }
  return StepLimits{.shape = grant.plan.shape,
                    .y_dtype = grant.request.y_dtype,
                    .strict = grant.request.strict,
                    .max_tokens = MaxTokens(mode, plan_max, grant.request)};
}

absl::StatusOr<StepTicket> GatewayRunner::Submit(const StepRequest& request, TimePoint now) {
  StepId step;
  std::int32_t hidden = 0;
  {
    const MutexLock lock(mutex_);
    if (end_.has_value()) return WhyEnded();
    if (!grant_.has_value()) {
      return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                       "the gateway has not opened the session yet");
    }
    SY_ASSIGN_OR_RETURN(const StepLimits limits, LimitsOf(request.layer));
    SY_RETURN_IF_ERROR(ValidateStep(request, limits));
    if (pending_.size() >= grant_->credits) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       absl::StrCat(pending_.size(),
                                    " steps of this session are outstanding, which is its limit; "
                                    "wait for one first"),
                       {{"limit", absl::StrCat(grant_->credits)}});
    }
    hidden = limits.shape.hidden;
    step = StepId{++last_step_};
    const Duration deadline = request.deadline > Duration::zero()
                                  ? request.deadline
                                  : grant_->grant.request.step_deadline;
    pending_[step.value] = {request, std::nullopt,
                            now + std::min(deadline, kStepDeadlineMax) + kGatewaySlack};
  }
  // Without the mutex: the answer to another step may arrive while the rows are copied.
  const absl::Status sent = Send(step, request, hidden);
  if (!sent.ok()) {
    const MutexLock lock(mutex_);
    pending_.erase(step.value);
    return sent;
  }
  return TicketOf(step.value);
}

absl::Status GatewayRunner::Send(StepId step, const StepRequest& request, std::int32_t columns) {
  const auto tokens = static_cast<std::size_t>(request.tokens);
  const auto hidden = static_cast<std::size_t>(columns);
  const auto top_k = static_cast<std::size_t>(request.top_k);
  // The message is dense, and the caller's rows may not be.
  std::vector<Bf16> x(tokens * hidden);
  std::vector<std::int32_t> ids(tokens * top_k);
  std::vector<float> weights(tokens * top_k);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto row = static_cast<std::int64_t>(t);
    std::memcpy(&x[t * hidden], request.x + row * request.x_stride, hidden * sizeof(Bf16));
    std::memcpy(&ids[t * top_k], request.ids + row * request.ids_stride,
                top_k * sizeof(std::int32_t));
    std::memcpy(&weights[t * top_k], request.weights + row * request.weights_stride,
                top_k * sizeof(float));
  }
  return stream_->Submit({.step = step,
                          .layer = request.layer,
                          .tokens = request.tokens,
                          .x = std::as_bytes(std::span(x)),
                          .ids = ids,
                          .weights = weights,
                          .deadline = request.deadline});
}

absl::StatusOr<bool> GatewayRunner::IsDone(const StepTicket& ticket) const {
  const MutexLock lock(mutex_);
  const auto it = pending_.find(StepOf(ticket));
  if (it == pending_.end()) return UsedTicket();
  return it->second.result.has_value();
}

absl::Status GatewayRunner::Take(const StepTicket& ticket, TimePoint /*now*/) {
  const MutexLock lock(mutex_);
  const auto it = pending_.find(StepOf(ticket));
  if (it == pending_.end()) return UsedTicket();
  // The gateway may still answer a step that is given up; OnStep then finds nothing to write to.
  absl::Status result = it->second.result.value_or(
      MakeError(absl::StatusCode::kCancelled, Reason::kUnspecified, "given up by its caller"));
  pending_.erase(it);
  return result;
}

void GatewayRunner::Close(TimePoint /*now*/) {
  // The stream first and without the mutex: its end waits for a sink call that may want the mutex.
  // Afterwards the sink is silent.
  stream_.reset();
  const MutexLock lock(mutex_);
  EndAll(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                   "the session is closed; open another"));
}

RunnerStatus GatewayRunner::Status() const {
  const MutexLock lock(mutex_);
  RunnerStatus status;
  if (!grant_.has_value()) return status;
  status.grant = grant_->grant;
  status.epoch = grant_->grant.plan.epoch;
  status.gateway_worker = grant_->worker_id;
  status.steps_in_flight = static_cast<std::uint32_t>(
      std::count_if(pending_.begin(), pending_.end(),
                    [](const auto& row) { return !row.second.result.has_value(); }));
  return status;
}

}  // namespace switchyard
