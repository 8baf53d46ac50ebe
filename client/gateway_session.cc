#include "client/gateway_session.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/source_moe_session.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/p2p/bound_plan.h"
#include "worker/source/step_validation.h"

namespace switchyard {
namespace {

// Beyond the step's own deadline, which the gateway keeps: for the way there and back.
constexpr Duration kGatewaySlack = std::chrono::seconds(2);

absl::Status UsedTicket() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                   "this step was waited for before or never submitted; submit again");
}

class GatewaySession final : public MoeSession, private StepSink {
 public:
  GatewaySession(const GatewaySessionParts& parts, const OpenSessionRequest& order)
      : parts_(parts) {
    stream_ = parts_.steps->Open(order, this);
  }
  ~GatewaySession() override { Close().IgnoreError(); }  // A destructor has nobody to tell.

  // Until the gateway has answered Open.
  absl::Status WaitOpen() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, parts_.timeout, [this] { return binding_ != nullptr || ended_; });
    if (binding_ != nullptr) return absl::OkStatus();
    if (ended_) return end_;
    return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                     "the gateway did not open the session in time; is it reachable?");
  }

  std::string worker_id() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return grant_.worker_id;
  }

  absl::StatusOr<Ticket> Submit(const StepRequest& request) override;
  absl::StatusOr<bool> Done(Ticket ticket) override;
  absl::Status Wait(Ticket ticket) override;
  absl::StatusOr<SessionGrant> Grant() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return grant_.grant;
  }
  absl::StatusOr<SessionReport> Report(Duration timeout) override;
  absl::Status Close() override;

 private:
  struct Pending {
    StepRequest request;
    std::optional<absl::Status> result;
    TimePoint give_up_at{};
  };

  void OnOpened(const GatewayGrant& grant) override;
  void OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) override;
  void OnEnded(const absl::Status& why) override;
  void WriteY(const StepRequest& request, std::span<const std::byte> y) const;
  absl::Status Send(StepId step, const StepRequest& request);

  const GatewaySessionParts parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  GatewayGrant grant_;
  std::unique_ptr<BoundPlan> binding_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_step_ = 0;
  bool ended_ = false;
  absl::Status end_;
  std::unique_ptr<StepStream> stream_;  // used outside the mutex; reset by Close alone
};

void GatewaySession::OnOpened(const GatewayGrant& grant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<std::unique_ptr<BoundPlan>> binding =
      MakeBoundPlan({grant.grant.plan, grant.grant.hash}, grant.grant.order, *parts_.device);
  if (binding.ok()) {
    grant_ = grant;
    binding_ = *std::move(binding);
  } else {
    ended_ = true;
    end_ = binding.status();
  }
  changed_.notify_all();
}

void GatewaySession::OnStep(StepId step, const absl::Status& status, std::span<const std::byte> y) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = pending_.find(step.value);
  // Under the mutex, so that y is never written after Wait has returned.
  if (it == pending_.end() || it->second.result.has_value()) return;
  const StepRequest& request = it->second.request;
  const std::size_t element = grant_.grant.order.y_dtype == OutputDtype::kBf16 ? 2 : 4;
  const std::size_t expected = static_cast<std::size_t>(request.tokens) *
                               static_cast<std::size_t>(binding_->plan.shape.hidden) * element;
  it->second.result = status;
  if (status.ok() && y.size() != expected) {
    it->second.result = MakeError(
        absl::StatusCode::kInternal, Reason::kFrame,
        absl::StrCat("the gateway answered ", y.size(), " bytes, ", expected, " were expected"));
  } else if (status.ok()) {
    WriteY(request, y);
  }
  changed_.notify_all();
}

void GatewaySession::WriteY(const StepRequest& request, std::span<const std::byte> y) const {
  const std::size_t element = grant_.grant.order.y_dtype == OutputDtype::kBf16 ? 2 : 4;
  const std::size_t row = static_cast<std::size_t>(binding_->plan.shape.hidden) * element;
  auto* out = static_cast<std::byte*>(request.y);
  for (std::int32_t t = 0; t < request.tokens; ++t) {
    std::memcpy(out + static_cast<std::size_t>(t * request.y_stride) * element,
                y.data() + static_cast<std::size_t>(t) * row, row);
  }
}

void GatewaySession::OnEnded(const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  end_ = why.ok() ? MakeError(absl::StatusCode::kUnavailable, Reason::kSessionClosed,
                              "the gateway has closed the session; open another")
                  : why;
  for (auto& [step, pending] : pending_) {
    if (!pending.result.has_value()) pending.result = end_;
  }
  changed_.notify_all();
}

absl::StatusOr<MoeSession::Ticket> GatewaySession::Submit(const StepRequest& request) {
  StepId step;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return end_;
    SY_RETURN_IF_ERROR(ValidateStep(request, *binding_, binding_->FindLayer(request.layer),
                                    grant_.grant.order, parts_.device->row_ops()));
    if (pending_.size() >= grant_.credits) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       absl::StrCat(pending_.size(),
                                    " steps of this session are outstanding, which is its limit; "
                                    "wait for one first"),
                       {{"limit", absl::StrCat(grant_.credits)}});
    }
    step = StepId{++last_step_};
    const Duration deadline =
        request.deadline > Duration::zero() ? request.deadline : grant_.grant.order.step_deadline;
    pending_[step.value] = {request, std::nullopt, parts_.clock->Now() + deadline + kGatewaySlack};
  }
  const absl::Status sent = Send(step, request);
  if (!sent.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.erase(step.value);
    return sent;
  }
  return step.value;
}

absl::Status GatewaySession::Send(StepId step, const StepRequest& request) {
  const auto tokens = static_cast<std::size_t>(request.tokens);
  const auto hidden = static_cast<std::size_t>(binding_->plan.shape.hidden);
  const auto top_k = static_cast<std::size_t>(request.top_k);
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
                          .weights = weights});
}

absl::StatusOr<bool> GatewaySession::Done(Ticket ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = pending_.find(ticket);
  if (it == pending_.end()) return UsedTicket();
  return it->second.result.has_value();
}

absl::Status GatewaySession::Wait(Ticket ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto it = pending_.find(ticket);
  if (it == pending_.end()) return UsedTicket();
  const Pending& pending = it->second;
  const Duration left = pending.give_up_at - parts_.clock->Now();
  changed_.wait_for(lock, left, [&pending] { return pending.result.has_value(); });
  absl::Status result =
      pending.result.value_or(MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline,
                                        "the gateway did not answer the step; try again", {}));
  pending_.erase(it);
  return result;
}

absl::StatusOr<SessionReport> GatewaySession::Report(Duration timeout) {
  SessionReport report;
  SY_ASSIGN_OR_RETURN(report.grant, Grant());
  SY_ASSIGN_OR_RETURN(report.workers, AskWorkers(*parts_.sessions, report.grant.plan,
                                                 report.grant.session, timeout));
  report.status.session = report.grant.session;
  report.status.epoch = report.grant.plan.epoch;
  report.status.hash = report.grant.hash;
  report.path = "gateway";
  return report;
}

absl::Status GatewaySession::Close() {
  // Ends the stream; OnEnded is not called after that.
  stream_.reset();
  OnEnded(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                    "the session is closed; open another"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedGateway> OpenGatewaySession(const GatewaySessionParts& parts,
                                                 const OpenSessionRequest& order) {
  auto session = std::make_unique<GatewaySession>(parts, order);
  SY_RETURN_IF_ERROR(session->WaitOpen());
  std::string worker_id = session->worker_id();
  return OpenedGateway{std::move(session), std::move(worker_id)};
}

}  // namespace switchyard
