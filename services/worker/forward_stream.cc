#include "services/worker/forward_stream.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "services/convert/step.h"
#include "services/grpc/server_streams.h"
#include "worker/expert/expert_attachment.h"

namespace switchyard {
namespace {

// How long after a change of plan an idle caller is told, at most.
constexpr Duration kPlanLook = std::chrono::seconds(1);

// One step and all memory that it uses until its result is taken.
struct ForwardedStep {
  // Keeps the number of the step.
  void FreeRequest() {
    step.step.x = {};
    step.step.ids = {};
    step.step.weights = {};
    step.ids = {};
    step.weights = {};
    request = {};
  }

  v1::ForwardRequest request;    // holds x
  ReceivedStep step;             // and its routing
  v1::ForwardResponse response;  // y is written straight into it
  StepTicket ticket;
  StepMemory::Share memory;
  absl::Status refused;  // when it arrived; the request is empty then
  TimePoint arrived{};
};

class ForwardStream final : public ServerBidiStream<v1::ForwardRequest, v1::ForwardResponse>,
                            private GatewaySessions::Session {
 public:
  ForwardStream(const StreamCall& call, SourcePool* sources, ThreadPool* threads,
                const GatewayOptions* options)
      : ServerBidiStream(call, {.request_bytes_max = kStepMessageBytesMax,
                                .queue_bytes_max = kStepQueueBytesMax}),
        sources_(sources),
        threads_(threads),
        options_(options),
        part_(options->part_of ? options->part_of(caller()) : GatewayPart{options->memory}),
        memory_(part_.ok() ? part_->memory : options->memory) {}

  using ServerBidiStream::BeginReading;

 private:
  using Steps = std::deque<std::unique_ptr<ForwardedStep>>;

  void OnRequest(v1::ForwardRequest& request) override {
    auto step = std::make_unique<ForwardedStep>();
    // Swapped, not copied: x may be tens of megabytes.
    step->request.Swap(&request);
    absl::StatusOr<ForwardMessage> message = FromProto(step->request);
    if (!message.ok()) return Stop(message.status());
    if (auto* open = std::get_if<OpenSessionRequest>(&*message)) {
      open->on_behalf_of = caller();
      // The device and the hosts of a group are those of the caller, and the source is here.
      if (open->binding == BindingChoice::kAuto) open->group = {};
      // Options are small; the stream's limit is for steps.
      const absl::Status size = CheckMessageSize(step->request, kControlMessageBytesMax);
      return size.ok() ? OnOpen(std::move(*open)) : Stop(size);
    }
    step->step = std::move(std::get<ReceivedStep>(*message));
    OnStep(std::move(step));
  }

  void OnOpen(OpenSessionRequest request) {
    if (std::exchange(opened_, true)) return Stop(Misplaced("a stream opens one session"));
    if (!part_.ok()) return Stop(part_.status());
    // The session thread must find the stream alive.
    if (!Hold()) return ReadNext();
    if (!options_->sessions->Enter(this)) {
      Release();
      return Stop(Leaving());
    }
    const bool of_tenant = part_->sessions != nullptr && !part_->sessions->Take();
    const bool taken = !of_tenant && threads_->TryRun([this, request = std::move(request)] {
      Run(request);
      LeavePlace();
      options_->sessions->Exit(this);
      Release();
    });
    if (taken) return;
    if (!of_tenant) LeavePlace();
    options_->sessions->Exit(this);
    Release();
    Stop(of_tenant ? TenantHasAll()
                   : TooMany("already serves its maximum of gateway sessions; wait"));
  }
  void LeavePlace() {
    if (part_->sessions != nullptr) part_->sessions->Leave();
  }
  [[nodiscard]] absl::Status TenantHasAll() const {
    return TooMany(absl::StrCat("already serves ", part_->sessions->most(),
                                " sessions of the tenant of ", caller(),
                                ", the most that one tenant may have here; close some"));
  }
  [[nodiscard]] absl::Status TooMany(absl::string_view why) const {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
        absl::StrCat("worker ", options_->worker_id, " ", why, ", or use another worker"),
        {{"worker", options_->worker_id}});
  }

  void OnStep(std::unique_ptr<ForwardedStep> step) {
    if (!opened_) return Stop(Misplaced("the first message of a stream opens a session"));
    step->arrived = SteadyClock().Now();
    const std::size_t bytes = step->request.ByteSizeLong() +
                              step->step.ids.size() * sizeof(std::int32_t) +
                              step->step.weights.size() * sizeof(float);
    if (!step->memory.Grow(memory_.get(), bytes)) {
      step->refused = NoMemory(bytes);
      step->FreeRequest();
    }
    bool may_send_more = true;
    bool interrupt = false;
    bool taken = false;
    // Not under mutex_, which OnLeaving takes while the sessions are locked.
    options_->sessions->BeginStep();
    {
      const MutexLock lock(mutex_);
      if (!session_over_) {
        steps_.push_back(std::move(step));
        has_news_ = true;
        interrupt = waits_in_source_;
        ++unanswered_;
        taken = true;
        // Back-pressure: without a read, gRPC's flow control stops the caller.
        may_send_more = unanswered_ < options_->credits;
        read_waits_ = !may_send_more;
      }
    }
    if (!taken) options_->sessions->EndStep();
    Wake(interrupt);
    if (may_send_more) ReadNext();
  }

  void OnLeaving() override {
    bool interrupt = false;
    {
      const MutexLock lock(mutex_);
      leaving_ = true;
      has_news_ = true;
      interrupt = waits_in_source_;
    }
    Wake(interrupt);
  }
  void OnPeerDone() override {
    EndSteps();
    if (!opened_) End(absl::OkStatus());
  }
  void OnStreamDone() override {}
  // The session thread holds the stream until its steps have ended.
  void OnRevoked() override { EndSteps(); }
  void OnMessageWritten() override {
    const MutexLock lock(mutex_);
    written_.pop_front();
  }
  // A message with the memory that it takes, which counts until it has been written.
  void Send(v1::ForwardResponse message, StepMemory::Share memory = {}) {
    {
      // First, because the write may end before Write returns.
      const MutexLock lock(mutex_);
      written_.push_back(std::move(memory));
    }
    Write(std::move(message));
  }

  static absl::Status Misplaced(absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest, what,
                     {{"field", "ForwardRequest.message"}});
  }
  [[nodiscard]] absl::Status Leaving() const {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     absl::StrCat("gateway ", options_->worker_id,
                                  " is leaving and takes no new sessions; use another gateway"),
                     {{"worker", options_->worker_id}});
  }
  [[nodiscard]] absl::Status NoMemory(std::size_t bytes) const {
    const bool of_tenant = memory_ != options_->memory && memory_->Lacks(bytes);
    const StepMemory& memory = of_tenant ? *memory_ : *options_->memory;
    const std::string whose =
        of_tenant ? absl::StrCat("of the tenant of ", caller()) : "of all callers";
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
        absl::StrCat("gateway ", options_->worker_id, ": this step takes ", bytes,
                     " bytes more, and the steps ", whose, " hold ", memory.used(), " of ",
                     memory.bytes_max(),
                     "; read results, try again when steps have ended, or use another gateway"),
        {{"worker", options_->worker_id},
         {"want", absl::StrCat(bytes)},
         {"limit", absl::StrCat(memory.bytes_max())}});
  }
  // For a request that ends the stream.
  void Stop(const absl::Status& why) {
    End(why);
    EndSteps();
    ReadNext();
  }
  void EndSteps() {
    bool interrupt = false;
    {
      const MutexLock lock(mutex_);
      no_more_steps_ = true;
      has_news_ = true;
      interrupt = waits_in_source_;
    }
    Wake(interrupt);
  }
  // Wakes the session thread where it waits. An interrupt that nobody waits for would cost a system
  // call here and end the source's next sleep for nothing.
  void Wake(bool interrupt) { interrupt ? source_->Interrupt() : changed_.NotifyOne(); }

  // The gateway's own experts are called directly, without the attachments that record magnitudes.
  absl::StatusOr<Source::SessionRef> Open(const OpenSessionRequest& request) {
    if (request.record_amax) {
      return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                       absl::StrCat("gateway ", options_->worker_id,
                                    " does not record magnitudes; open the session over p2p"));
    }
    source_ = sources_->Take();
    return source_->Open(request, options_->open_timeout);
  }

  // The session thread.
  void Run(const OpenSessionRequest& request) {
    const absl::StatusOr<Source::SessionRef> session = Open(request);
    absl::Status status = session.status();
    if (status.ok()) {
      status = Serve(*session);
      source_->Close(*session, options_->close_timeout).IgnoreError();
    }
    in_flight_.clear();  // After Close: nothing writes to a step's memory any more.
    End(status);
    // Read on until the stream is over: gRPC ends a stream only while a read is outstanding.
    bool read_waits = false;
    std::uint32_t unanswered = 0;
    {
      const MutexLock lock(mutex_);
      session_over_ = true;
      read_waits = std::exchange(read_waits_, false);
      unanswered = std::exchange(unanswered_, 0);
      steps_.clear();
    }
    for (; unanswered > 0; --unanswered) options_->sessions->EndStep();
    if (read_waits) ReadNext();
  }

  // OK when the caller has no more steps.
  absl::Status Serve(Source::SessionRef session) {
    SY_ASSIGN_OR_RETURN(RunnerStatus status, source_->Status(session));
    SessionGrant& grant = status.grant;
    epoch_told_ = status.epoch;
    shape_ = grant.plan.shape;
    y_bytes_ = grant.request.y_dtype == OutputDtype::kF32 ? 4 : 2;
    const DispatchMode mode = grant.request.mode.value_or(DispatchMode::kNormal);
    times_ = &options_->counts->StepOf(WorkClassOf(grant.request.phase, mode), mode);
    Send(ForwardOpened({std::move(grant), options_->credits, options_->worker_id}));
    ReadOn();
    while (!ended()) {
      SY_RETURN_IF_ERROR(TellNews(session));
      bool over = false;
      Steps arrived = NextSteps(&over);
      for (std::unique_ptr<ForwardedStep>& step : arrived) {
        const absl::Status submitted = step->refused.ok() ? Submit(session, *step) : step->refused;
        if (submitted.ok()) {
          in_flight_.push_back(std::move(step));
        } else {
          Answer(*step, submitted);
        }
      }
      if (in_flight_.empty() && over) return absl::OkStatus();
      if (in_flight_.empty()) continue;
      const std::optional<std::size_t> done = WaitForNews(session);
      if (!done.has_value()) continue;
      const auto at = in_flight_.begin() + static_cast<std::ptrdiff_t>(*done);
      const std::unique_ptr<ForwardedStep> step = std::move(*at);
      in_flight_.erase(at);
      Answer(*step, source_->Wait(session, step->ticket));
    }
    return absl::CancelledError("the caller is gone");
  }

  // Tells the caller of a new plan, and that this gateway leaves.
  absl::Status TellNews(Source::SessionRef session) {
    GatewayNews news;
    bool any = false;
    {
      const MutexLock lock(mutex_);
      news.leaving = leaving_;
      any = leaving_ && !std::exchange(leaving_told_, true);
    }
    const TimePoint now = SteadyClock().Now();
    if (now >= look_at_) {
      look_at_ = now + kPlanLook;
      SY_ASSIGN_OR_RETURN(const Epoch epoch, source_->EpochOf(session));
      // 0: the session is ending, and its steps say why.
      if (epoch != Epoch{} && epoch != epoch_told_) {
        SY_ASSIGN_OR_RETURN(RunnerStatus status, source_->Status(session));
        epoch_told_ = status.epoch;
        news.plan = {std::move(status.grant.plan), status.grant.hash};
        any = true;
      }
    }
    if (any) Send(ForwardNews(news));
    return absl::OkStatus();
  }

  // The first step in flight that is done, in the order of submission; nullopt when steps have
  // arrived meanwhile.
  std::optional<std::size_t> WaitForNews(Source::SessionRef session) {
    std::vector<StepTicket> tickets;
    for (const auto& step : in_flight_) tickets.push_back(step->ticket);
    {
      const MutexLock lock(mutex_);
      if (has_news_) return std::nullopt;
      waits_in_source_ = true;
    }
    const auto done = source_->WaitAny(session, tickets, has_news_);
    {
      const MutexLock lock(mutex_);
      waits_in_source_ = false;
    }
    // The session is closed: Wait gives each step the reason.
    return done.ok() ? *done : 0;
  }

  // Takes the steps that have arrived; unless steps are in flight, waits for the first and for
  // whatever the caller has to be told. `over`: no more will come.
  Steps NextSteps(bool* over) {
    const MutexLock lock(mutex_);
    const bool idle = in_flight_.empty() && steps_.empty() && !no_more_steps_;
    if (idle && leaving_ == leaving_told_) {
      changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kPlanLook);
    }
    has_news_ = leaving_ != leaving_told_;
    *over = no_more_steps_;
    return std::exchange(steps_, {});
  }

  absl::Status Submit(Source::SessionRef session, ForwardedStep& step) {
    const GatewayStep& in = step.step.step;
    const auto tokens = static_cast<std::size_t>(in.tokens);
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    const auto top_k = static_cast<std::size_t>(shape_.top_k);
    if (in.x.size() != tokens * hidden * sizeof(Bf16)) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadShape,
                       absl::StrCat("x has ", in.x.size(), " bytes; ", tokens, " tokens of hidden ",
                                    hidden, " in BF16 have ", tokens * hidden * sizeof(Bf16)),
                       {{"layer", absl::StrCat(in.layer.value)}});
    }
    if (in.ids.size() != tokens * top_k) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadTopK,
                       absl::StrCat(in.ids.size(), " ids for ", tokens, " tokens of top-k ", top_k),
                       {{"layer", absl::StrCat(in.layer.value)}});
    }
    // The answer must fit too; it is checked before the step costs anything.
    const std::size_t y_bytes = tokens * hidden * y_bytes_;
    if (y_bytes + kStepHeaderBytesMax > kStepMessageBytesMax) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
          absl::StrCat("y of ", tokens, " tokens has ", y_bytes, " bytes; the limit is ",
                       kStepMessageBytesMax, ": send fewer tokens in a step"),
          {{"layer", absl::StrCat(in.layer.value)}});
    }
    if (!step.memory.Grow(memory_.get(), y_bytes)) return NoMemory(y_bytes);
    std::string* y = step.response.mutable_result()->mutable_y();
    y->resize(y_bytes);
    StepRequest request =
        RequestOf({.layer = in.layer,
                   .hidden = shape_.hidden,
                   .top_k = shape_.top_k,
                   .x = {reinterpret_cast<const Bf16*>(in.x.data()), tokens * hidden},
                   .ids = in.ids,
                   .weights = in.weights,
                   .y = y->data()});
    request.deadline = in.deadline;
    SY_ASSIGN_OR_RETURN(step.ticket, source_->Submit(session, request));
    return absl::OkStatus();
  }

  void Answer(ForwardedStep& step, const absl::Status& status) {
    const StepId id = step.step.step.step;
    Count(step, status);
    if (status.ok()) {
      step.response.mutable_result()->set_step(id.value);
      // x is not needed any more. y is, for as long as the caller does not read it.
      step.FreeRequest();
      step.memory.ShrinkTo(step.response.result().y().size());
      Send(std::move(step.response), std::move(step.memory));
    } else {
      Send(ForwardResult({id, status, {}}));
    }
    bool read_on = false;
    {
      const MutexLock lock(mutex_);
      // A credit is free again, so the read that OnStep held back may go on.
      --unanswered_;
      read_on = std::exchange(read_waits_, false);
    }
    options_->sessions->EndStep();
    if (read_on) ReadNext();
  }

  void Count(const ForwardedStep& step, const absl::Status& status) const {
    GatewayCounts& counts = *options_->counts;
    if (!status.ok()) {
      counts.errors.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    counts.results.fetch_add(1, std::memory_order_relaxed);
    counts.tokens.fetch_add(static_cast<std::uint64_t>(step.step.step.tokens),
                            std::memory_order_relaxed);
    times_->Observe(SteadyClock().Now() - step.arrived);
  }

  // Starts the read that OnOpen held back.
  void ReadOn() {
    {
      const MutexLock lock(mutex_);
      read_waits_ = false;
    }
    ReadNext();
  }

  SourcePool* const sources_;
  // Set by the session thread before it waits there, which is when others use it.
  std::shared_ptr<Source> source_;
  ThreadPool* const threads_;
  const GatewayOptions* const options_;
  const absl::StatusOr<GatewayPart> part_;
  const std::shared_ptr<StepMemory> memory_;  // outlives the shares of it below
  bool opened_ = false;                       // used only by gRPC's reads, which come one at a time

  // Steps have arrived, or the last one has. Set under mutex_, since NextSteps clears it with what
  // it takes.
  std::atomic<bool> has_news_{false};
  Mutex mutex_;
  CondVar changed_;
  Steps steps_ SY_GUARDED_BY(mutex_);
  // The memory of messages that were sent and are not written yet, in order. The last may never be
  // written; the stream gives it back then.
  std::deque<StepMemory::Share> written_ SY_GUARDED_BY(mutex_);
  bool waits_in_source_ SY_GUARDED_BY(mutex_) = false;  // the session thread; else for changed_
  std::uint32_t unanswered_ SY_GUARDED_BY(mutex_) = 0;
  bool read_waits_ SY_GUARDED_BY(mutex_) = true;  // from OnOpen until the session is open
  bool no_more_steps_ SY_GUARDED_BY(mutex_) = false;
  bool leaving_ SY_GUARDED_BY(mutex_) = false;
  bool leaving_told_ SY_GUARDED_BY(mutex_) = false;
  bool session_over_ SY_GUARDED_BY(mutex_) =
      false;  // no step is answered any more, no read resumed

  // Used only by the session thread.
  Steps in_flight_;
  MoeShape shape_;
  std::size_t y_bytes_ = 0;
  Histogram* times_ = nullptr;  // from Serve on
  Epoch epoch_told_;
  TimePoint look_at_{};  // for a new epoch
};

}  // namespace

grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* ServeForward(
    const StreamCall& call, SourcePool* sources, ThreadPool* threads,
    const GatewayOptions* options) {
  auto* stream = new ForwardStream(call, sources, threads, options);  // deletes itself
  stream->BeginReading();
  return stream;
}

}  // namespace switchyard
