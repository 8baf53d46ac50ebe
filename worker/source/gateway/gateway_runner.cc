#include "worker/source/gateway/gateway_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/session_model.h"

namespace switchyard {
namespace {

// Beyond the step's own deadline, which the gateway enforces: for the way there and back.
constexpr Duration kGatewaySlack = std::chrono::seconds(2);
// For one gateway to open the session while there are others. At first less than a client waits
// in all, so that the second one is asked too.
constexpr Duration kFirstOpenMax = std::chrono::seconds(3);
constexpr Duration kOpenMax = std::chrono::seconds(10);
// Between two attempts after the session was open.
constexpr Duration kPauseMin = std::chrono::milliseconds(20);
constexpr Duration kPauseMax = std::chrono::seconds(1);

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

// Whether another gateway, or this one later, may do better.
bool MayBeOtherwise(const absl::Status& why) {
  return absl::IsUnavailable(why) || absl::IsResourceExhausted(why) || absl::IsUnimplemented(why);
}

// Whether the coordinator refuses the session because of what the caller's tenant has open, this
// session through the gateway of before included. A gateway's own limit names no id.
bool IsTenantsLimit(const absl::Status& why) {
  if (ReasonOf(why) != Reason::kTooManySessions) return false;
  const auto metadata = MetadataOf(why);
  return metadata.count("id") > 0 && metadata.count("limit") > 0;
}

}  // namespace

// Its fields are guarded by the runner's mutex, except `stream`, which only the thread that drives
// the runner uses.
class GatewayRunner::Lane final : public StepSink {
 public:
  Lane(GatewayRunner* runner, std::string where, TimePoint until)
      : gateway(std::move(where)), give_up_at(until), runner_(runner) {}

  void OnOpened(const GatewayGrant& granted) override { runner_->OnOpened(*this, granted); }
  void OnNews(const GatewayNews& news) override { runner_->OnNews(*this, news); }
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) override {
    runner_->OnStep(step, status, y);
  }
  void OnEnded(const absl::Status& why) override { runner_->OnEnded(*this, why); }

  const std::string gateway;
  const TimePoint give_up_at;  // while it opens
  std::optional<GatewayGrant> grant;
  bool leaving = false;
  std::optional<absl::Status> end;

 private:
  GatewayRunner* const runner_;

 public:
  // Last: it calls this object until it is gone.
  std::unique_ptr<StepStream> stream;
};

GatewayRunner::GatewayRunner(GatewayRunnerOptions options)
    : options_(std::move(options)), choice_(options_.gateways) {}

GatewayRunner::~GatewayRunner() { Close({}); }

absl::Status GatewayRunner::Start(TimePoint now) {
  OpenNext(now);
  return absl::OkStatus();
}

void GatewayRunner::OpenNext(TimePoint now) {
  Lane* lane = nullptr;
  OpenSessionRequest request = options_.request;
  {
    const MutexLock lock(mutex_);
    // The session is pinned to what was granted: defaults may mean something else by now.
    if (grant_.has_value()) request = grant_->grant.request;
    const std::string but = current_ == nullptr ? "" : current_->gateway;
    const Duration most = grant_.has_value() ? kOpenMax : kFirstOpenMax;
    lanes_.push_back(std::make_unique<Lane>(this, choice_.Next(but), now + most));
    lane = lanes_.back().get();
    opening_ = lane;
  }
  // Not under the mutex: the channel may call the sink from within Open.
  lane->stream = options_.steps->Open(lane->gateway, request, lane);
}

void GatewayRunner::OnOpened(Lane& lane, const GatewayGrant& grant) {
  {
    const MutexLock lock(mutex_);
    lane.grant = grant;
    // The gateway's own grant is p2p; seen from here its steps go through the gateway.
    lane.grant->grant.binding = Binding::kGateway;
    lane.grant->grant.binding_reason.clear();  // of the gateway's own session
  }
  options_.wake();
}

void GatewayRunner::OnNews(Lane& lane, const GatewayNews& news) {
  {
    const MutexLock lock(mutex_);
    lane.leaving = lane.leaving || news.leaving;
    SessionGrant* known = lane.grant.has_value() ? &lane.grant->grant : nullptr;
    if (&lane == current_) known = &grant_->grant;
    // The caller's memory was checked against the shape of the plan that is known.
    if (known != nullptr && news.plan.has_value() && known->plan.epoch < news.plan->plan.epoch &&
        CheckSameModel(known->plan, news.plan->plan).ok()) {
      known->plan = news.plan->plan;
      known->hash = news.plan->hash;
      if (&lane == current_) choice_.SetPlan(known->plan);
    }
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

void GatewayRunner::OnEnded(Lane& lane, const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    // A gateway ends a stream without an error when it shuts down.
    lane.end =
        why.ok()
            ? MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                        absl::StrCat("gateway ", lane.gateway, " has ended the session; retry"))
            : why;
    EndSteps(&lane, *lane.end);
  }
  options_.wake();
}

void GatewayRunner::EndSteps(const Lane* lane, const absl::Status& why) {
  for (auto& [step, pending] : pending_) {
    if (pending.result.has_value() || (lane != nullptr && pending.lane != lane)) continue;
    pending.result = why;
  }
}

absl::Status GatewayRunner::WhyNotReady() const {
  if (over_.has_value()) return *over_;
  if (current_ != nullptr && !current_->end.has_value()) return absl::OkStatus();
  if (!grant_.has_value()) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     "the gateway has not opened the session yet");
  }
  const absl::Status& why = current_ != nullptr ? *current_->end : obstacle_;
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("gateway ", grant_->worker_id, " is lost (", why.message(),
                                "), and the session is being opened through another one; retry"),
                   {{"worker", grant_->worker_id}});
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
  RunnerProgress progress;
  Lanes unused;
  bool open = false;
  {
    const MutexLock lock(mutex_);
    progress.worked = SettleOpening(now);
    if (current_ != nullptr && current_->end.has_value()) {
      obstacle_ = *current_->end;
      if (!MayBeOtherwise(obstacle_)) over_ = obstacle_;
      current_ = nullptr;
      progress.worked = true;
    }
    unused = TakeUnused();
    progress.worked |= EndOverdue(now);
    open = MustOpen(now);
  }
  // Not under the mutex: the end of a stream waits for a sink call that may want it.
  unused.clear();
  if (open) {
    OpenNext(now);
    progress.worked = true;
  }
  const MutexLock lock(mutex_);
  progress.wake_at = WakeAt();
  if (grant_.has_value()) {
    // An opened session stays ready when its stream ends: Submit gives the reason.
    progress.state = RunnerProgress::State::kReady;
  } else if (over_.has_value()) {
    progress.state = RunnerProgress::State::kFailed;
    progress.why = *over_;
  } else {
    progress.why =
        !obstacle_.ok()
            ? obstacle_
            : MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                        "the gateway did not open the session in time; is it reachable?");
  }
  return progress;
}

bool GatewayRunner::SettleOpening(TimePoint now) {
  if (opening_ == nullptr) return false;
  if (opening_->grant.has_value() && !opening_->end.has_value()) {
    Lane* const opened = std::exchange(opening_, nullptr);
    if (const absl::Status same = CheckContinues(*opened->grant); !same.ok()) {
      over_ = same;
      current_ = nullptr;
      return true;
    }
    current_ = opened;
    grant_ = opened->grant;
    choice_.SetPlan(grant_->grant.plan);
    refused_ = 0;
    return true;
  }
  if (opening_->end.has_value()) {
    TryAnother(*opening_->end, now);
    return true;
  }
  if (choice_.size() == 1 || now < opening_->give_up_at) return false;
  TryAnother(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                       absl::StrCat("gateway ", opening_->gateway, " did not open the session")),
             now);
  return true;
}

absl::Status GatewayRunner::CheckContinues(const GatewayGrant& next) const {
  if (!grant_.has_value()) return absl::OkStatus();
  SY_RETURN_IF_ERROR(CheckSameModel(grant_->grant.plan, next.grant.plan));
  if (next.grant.request.y_dtype == grant_->grant.request.y_dtype) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, Reason::kFrame,
                   absl::StrCat("gateway ", next.worker_id,
                                " opened the session with another dtype "
                                "of y; open another session"));
}

void GatewayRunner::TryAnother(const absl::Status& why, TimePoint now) {
  opening_ = nullptr;
  ++refused_;
  // A gateway that only has to wait outweighs others that are gone: Open may be repeated.
  if (grant_.has_value() || ReasonOf(obstacle_) != Reason::kNotReady) obstacle_ = why;
  // One gateway's refusal may be its own trouble. A session that was open goes on for as long as
  // its caller does, and a gateway that leaves still serves.
  const bool asked_all = refused_ >= choice_.size();
  const bool final = asked_all && (!grant_.has_value() || !MayBeOtherwise(why));
  if (final && current_ == nullptr) {
    over_ = obstacle_;
    return;
  }
  // It has no room for two: the one that leaves ends with its last step, and makes the room.
  if (current_ != nullptr && current_->leaving && IsTenantsLimit(why)) {
    current_ = nullptr;
    refused_ = 1;
  }
  pause_ = refused_ == 1 ? kPauseMin : std::min(2 * pause_, kPauseMax);
  open_at_ = grant_.has_value() ? now + pause_ : now;
}

GatewayRunner::Lanes GatewayRunner::TakeUnused() {
  Lanes unused;
  for (auto& lane : lanes_) {
    if (lane.get() == current_ || lane.get() == opening_) continue;
    const bool used = std::any_of(pending_.begin(), pending_.end(), [&lane](const auto& row) {
      return row.second.lane == lane.get() && !row.second.result.has_value();
    });
    if (used && !lane->end.has_value()) continue;
    unused.push_back(std::move(lane));
  }
  std::erase(lanes_, nullptr);
  return unused;
}

bool GatewayRunner::MustOpen(TimePoint now) const {
  if (over_.has_value() || opening_ != nullptr || now < open_at_) return false;
  return current_ == nullptr || current_->leaving;
}

bool GatewayRunner::EndOverdue(TimePoint now) {
  bool ended = false;
  for (auto& [step, pending] : pending_) {
    if (pending.result.has_value() || now < pending.give_up_at) continue;
    pending.result = MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline,
                               "the gateway did not answer the step in time; retry", {});
    ended = true;
  }
  return ended;
}

TimePoint GatewayRunner::WakeAt() const {
  TimePoint at = TimePoint::max();
  for (const auto& [step, pending] : pending_) {
    if (!pending.result.has_value()) at = std::min(at, pending.give_up_at);
  }
  if (over_.has_value()) return at;
  if (opening_ != nullptr) return choice_.size() > 1 ? std::min(at, opening_->give_up_at) : at;
  return current_ == nullptr || current_->leaving ? std::min(at, open_at_) : at;
}

absl::StatusOr<StepLimits> GatewayRunner::LimitsOf(LayerId layer) const {
  const MutexLock lock(mutex_);
  SY_RETURN_IF_ERROR(WhyNotReady());
  return KnownLimits(layer);
}

// The gateway validates too. Doing it here first saves the way there for a request that is wrong.
absl::StatusOr<StepLimits> GatewayRunner::KnownLimits(LayerId layer) const {
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
                    .max_tokens = MaxTokens(mode, plan_max, grant.request),
                    .step_deadline = grant.request.step_deadline};
}

absl::StatusOr<StepTicket> GatewayRunner::Submit(const StepRequest& request, TimePoint now) {
  StepId step;
  std::int32_t hidden = 0;
  StepStream* stream = nullptr;
  {
    const MutexLock lock(mutex_);
    SY_RETURN_IF_ERROR(WhyNotReady());
    SY_ASSIGN_OR_RETURN(const StepLimits limits, KnownLimits(request.layer));
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
    stream = current_->stream.get();
    pending_[step.value] = {current_, request, std::nullopt,
                            now + std::min(deadline, kStepDeadlineMax) + kGatewaySlack};
  }
  // Without the mutex: the answer to another step may arrive while the rows are copied.
  const absl::Status sent = Send(*stream, step, request, hidden);
  if (!sent.ok()) {
    const MutexLock lock(mutex_);
    pending_.erase(step.value);
    return sent;
  }
  return TicketOf(step.value);
}

absl::Status GatewayRunner::Send(StepStream& stream, StepId step, const StepRequest& request,
                                 std::int32_t columns) {
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
  return stream.Submit({.step = step,
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
  Lanes all;
  {
    const MutexLock lock(mutex_);
    over_ = MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                      "the session is closed; open another");
    current_ = nullptr;
    opening_ = nullptr;
    all = std::exchange(lanes_, {});
  }
  // Without the mutex: the end of a stream waits for a sink call that may want it. Afterwards the
  // sinks are silent.
  all.clear();
  const MutexLock lock(mutex_);
  EndSteps(nullptr, *over_);
}

Epoch GatewayRunner::epoch() const {
  const MutexLock lock(mutex_);
  return grant_.has_value() ? grant_->grant.plan.epoch : Epoch{};
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
