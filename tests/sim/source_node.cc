#include "tests/sim/source_node.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "tests/sim/coordinator_node.h"
#include "tests/sim/hash_experts.h"
#include "tests/sim/world.h"
#include "tests/testing/random_routing.h"

namespace switchyard::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr float kPoison = -12345.0F;
constexpr Bf16 kPoison16 = 0x7fc1;
constexpr std::int32_t kTokensMax = 12;
constexpr std::ptrdiff_t kStepsMax = 10;  // in flight

}  // namespace

SourceNode::SourceNode(World* world, std::string name, std::string deployment)
    : world_(world),
      id_(world->network.Add(name)),
      name_(std::move(name)),
      deployment_(std::move(deployment)),
      clock_(&world->scheduler),
      channel_(world, id_) {}

SourceNode::~SourceNode() = default;

void SourceNode::Start() {
  if (alive()) return;
  ++world_->stats.source_starts;
  world_->network.Start(id_);
  incarnation_ = world_->rng.NextId<Incarnation>();
  transport_ =
      std::make_unique<SimTransport>(world_, id_, incarnation_, [this] { SchedulePoll(); });
  poll_asked_ = false;
  world_->Trace("%s starts", name_);
  Open();
  Engine();
}

void SourceNode::Crash(bool silent) {
  if (!alive()) return;
  world_->Trace("%s crashes%s", name_, silent ? " with its machine" : "");
  world_->network.Crash(id_, silent);
  watch_.reset();
  runner_.reset();
  transport_.reset();
  jobs_.clear();
  lost_.clear();
  reopen_ = false;
  ++attempt_;
}

void SourceNode::Pause(Duration for_how_long) {
  if (!alive()) return;
  world_->Trace("%s pauses", name_);
  world_->network.Pause(id_, for_how_long);
}

void SourceNode::Open() {
  const std::uint64_t attempt = ++attempt_;
  CoordinatorNode& coordinator = world_->coordinator();
  OpenSessionRequest order;
  order.deployment = deployment_;
  order.max_tokens = kTokensMax;
  order.y_dtype = world_->Chance(0.5) ? OutputDtype::kF32 : OutputDtype::kBf16;
  order.step_deadline = world_->Between(milliseconds(150), milliseconds(1500));
  if (world_->Chance(0.7)) {
    order.mode = world_->Chance(0.5) ? DispatchMode::kNormal : DispatchMode::kLowLatency;
  }
  world_->network.Dial(id_, coordinator.id(), [this, attempt, order, &coordinator](auto there) {
    coordinator.OpenSession(order, [this, attempt, there](const auto& grant) {
      there->Send(1, [this, attempt, grant] {
        if (attempt == attempt_ && runner_ == nullptr) OnGrant(grant);
      });
    });
  });
  world_->network.AtNode(id_, seconds(2), [this, attempt] {
    if (attempt == attempt_ && runner_ == nullptr) Open();
  });
}

void SourceNode::OnGrant(const absl::StatusOr<SessionGrant>& grant) {
  if (!grant.ok()) return;  // The time-out tries again.
  ++world_->stats.sessions;
  P2pRunnerOptions options;
  options.channel = &channel_;
  options.transport = transport_.get();
  options.device = &world_->device;
  options.stream = *world_->device.MakeStream({.work_class = WorkClass::kDecode});
  options.clock = &clock_;
  options.rng = &world_->rng;
  options.wake = [this] { SchedulePoll(); };
  options.incarnation = incarnation_;
  options.grant = *grant;
  options.credits = static_cast<std::uint32_t>(1 + world_->rng.Below(4));
  options.chunk_rows_max = static_cast<std::uint32_t>(2 + world_->rng.Below(6));
  runner_ = std::make_unique<P2pRunner>(std::move(options));
  watch_ = std::make_unique<PlanWatch>(&channel_, *grant, [this] { SchedulePoll(); });
  opened_at_ = world_->now();
  if (const absl::Status started = runner_->Start(world_->now()); !started.ok()) {
    world_->oracles.Fail(absl::StrCat("a session does not start: ", started.ToString()));
  }
  SchedulePoll();
}

// An engine that has had no answer for a while opens another session.
void SourceNode::StartAgain() {
  const SessionId ended = runner_->grant().session;
  runner_->Close(world_->now());
  Collect();
  watch_.reset();
  runner_.reset();
  reopen_ = false;
  CoordinatorNode& coordinator = world_->coordinator();
  world_->network.Dial(id_, coordinator.id(),
                       [&coordinator, ended](auto) { coordinator.CloseSession(ended); });
  Open();
}

void SourceNode::SchedulePoll() {
  if (std::exchange(poll_asked_, true)) return;
  world_->network.AtNode(id_, world_->Between(microseconds(5), microseconds(200)),
                         [this] { Poll(); });
}

void SourceNode::Poll() {
  poll_asked_ = false;
  const Epoch before = runner_ != nullptr && runner_->bound_plan() != nullptr
                           ? runner_->bound_plan()->plan.epoch
                           : Epoch{};
  TimePoint due = TimePoint::max();
  bool worked = true;
  while (worked) {
    worked = transport_->Progress(*this);
    if (runner_ == nullptr) continue;
    worked |= watch_->Poll(*runner_, world_->now());
    const RunnerProgress progress = runner_->Poll(world_->now());
    worked |= progress.worked;
    due = std::min(progress.wake_at, watch_->wake_at());
  }
  if (runner_ == nullptr) return;
  Collect();
  const BoundPlan* bound = runner_->bound_plan();
  if (bound != nullptr && before.value != 0 && before < bound->plan.epoch) {
    ++world_->stats.switches;
  }
  if (due != TimePoint::max()) {
    const Duration after = std::max<Duration>(due - world_->now(), milliseconds(1));
    world_->network.AtNode(id_, after, [this] { SchedulePoll(); });
  }
}

void SourceNode::OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                         std::span<const std::byte> payload) {
  Attachment::Of(link).OnFrame(link, raw, header, payload);
}

void SourceNode::OnLinkDown(Link& link, const absl::Status& why) {
  Attachment& attachment = Attachment::Of(link);
  lost_[attachment.worker.incarnation] = world_->now();
  attachment.OnLinkDown(link, why);
}

// Submits a step now and then.
void SourceNode::Engine() {
  const Duration pause = world_->Between(milliseconds(10), milliseconds(200));
  world_->network.AtNode(id_, pause, [this] {
    const bool late =
        runner_ != nullptr && !runner_->ready().ok() && world_->now() > opened_at_ + seconds(4);
    if (late || reopen_) StartAgain();
    CheckCredits();
    if (runner_ != nullptr && runner_->ready().ok() && !world_->over()) {
      for (std::uint64_t i = 0; i <= world_->rng.Below(3); ++i) Submit();
      Collect();
    }
    std::erase_if(jobs_, [this](const auto& job) {
      if (!job->ended || world_->now() < job->forget_at) return false;
      if (job->forget_at != TimePoint{} && !Untouched(*job)) {
        world_->oracles.Fail(absl::StrCat(name_, ": y of a step that failed was written later"));
      }
      return true;
    });
    Engine();
  });
}

void SourceNode::Submit() {
  const auto running =
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->ended; });
  if (running >= kStepsMax) return;
  auto job = std::make_unique<Job>();
  const Plan& plan = runner_->bound_plan()->plan;
  const auto hidden = plan.shape.hidden;
  const OpenSessionRequest& options = runner_->grant().request;
  Fill(job.get(), plan);
  const StepRequest request =
      RequestOf({.layer = plan.layers[world_->rng.Below(plan.layers.size())].layer,
                 .hidden = hidden,
                 .top_k = plan.shape.top_k,
                 .x = job->x,
                 .ids = job->ids,
                 .weights = job->weights,
                 .y = options.y_dtype == OutputDtype::kF32 ? static_cast<void*>(job->y.data())
                                                           : static_cast<void*>(job->y_16.data())});
  absl::StatusOr<StepTicket> ticket = runner_->Submit(request, world_->now());
  // As Source::Submit: a refusal of the coordinator is final.
  if (absl::IsUnavailable(ticket.status()) && !watch_->refused().ok()) ticket = watch_->refused();
  SchedulePoll();
  if (!ticket.ok()) {
    // What a session says that the coordinator has forgotten, or whose deployment was deleted.
    reopen_ = absl::IsFailedPrecondition(ticket.status()) || absl::IsNotFound(ticket.status());
    return reopen_ ? void() : CheckFailure(*job, ticket.status());
  }
  ++world_->stats.steps_submitted;
  job->ticket = *ticket;
  job->submitted = world_->now();
  job->due = world_->now() + options.step_deadline;
  // The step runs on what the session is bound to now.
  Expect(job.get(), runner_->bound_plan()->plan);
  jobs_.push_back(std::move(job));
}

void SourceNode::Fill(Job* job, const Plan& plan) {
  const MoeShape& shape = plan.shape;
  const auto tokens = static_cast<std::int32_t>(world_->rng.Below(kTokensMax + 1));
  const testing::Routing routing = testing::RandomRouting(
      world_->rng, {.tokens = tokens, .top_k = shape.top_k, .experts = shape.experts}, 0.3, 0.05);
  job->ids = routing.ids;
  for (std::size_t i = 0; i < routing.weights.size(); ++i) {
    job->weights.push_back(world_->Chance(0.5) ? 1.0F : 2.0F);
  }
  const auto values = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(shape.hidden);
  for (std::int32_t t = 0; t < tokens; ++t) AppendRow(world_->rng, shape.hidden, &job->x);
  // A step without tokens needs no memory, but a place.
  job->ids.reserve(1);
  job->weights.reserve(1);
  job->x.reserve(1);
  job->y.assign(std::max<std::size_t>(values, 1), kPoison);
  job->y_16.assign(std::max<std::size_t>(values, 1), kPoison16);
}

void SourceNode::Expect(Job* job, const Plan& plan) const {
  const auto hidden = static_cast<std::size_t>(plan.shape.hidden);
  const auto top_k = static_cast<std::size_t>(plan.shape.top_k);
  job->workers = plan.workers;
  job->int8 = plan.configs[0].wire_dtype == DispatchDtype::kInt8;
  job->wanted.assign(job->x.size(), 0.0F);
  std::vector<float> answer(hidden);
  for (std::size_t pair = 0; pair < job->ids.size(); ++pair) {
    if (job->ids[pair] < 0) continue;
    const std::size_t at = pair / top_k * hidden;
    const std::uint64_t digest =
        world_->DigestOfExpert(plan, plan.layers[0].layer, ExpertId{job->ids[pair]});
    HashRow(digest, plan.epoch, std::span(job->x).subspan(at, hidden), answer.data());
    for (std::size_t i = 0; i < hidden; ++i) {
      job->wanted[at + i] += job->weights[pair] * answer[i];
    }
  }
}

void SourceNode::Collect() {
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job->ended) continue;
    const absl::StatusOr<bool> done = runner_->IsDone(job->ticket);
    if (!done.ok()) {
      world_->oracles.Fail(absl::StrCat(name_, ": a step is lost: ", done.status().ToString()));
    } else if (*done) {
      End(job.get(), runner_->Take(job->ticket, world_->now()));
    }
  }
}

void SourceNode::End(Job* job, const absl::Status& status) {
  job->ended = true;
  if (!status.ok()) {
    job->forget_at = world_->now() + seconds(3);
    std::fill(job->y.begin(), job->y.end(), kPoison);
    std::fill(job->y_16.begin(), job->y_16.end(), kPoison16);
    return CheckFailure(*job, status);
  }
  ++world_->stats.steps_done;
  world_->stats.int8_steps_done += job->int8 ? 1 : 0;
  const bool is_f32 = runner_->grant().request.y_dtype == OutputDtype::kF32;
  for (std::size_t i = 0; i < job->wanted.size(); ++i) {
    const float y = is_f32 ? job->y[i] : Bf16ToFloat(job->y_16[i]);
    if (y == job->wanted[i]) continue;
    return world_->oracles.Fail(absl::StrCat("I4/I9: ", name_, ": element ", i, " of a sum is ", y,
                                             ", and its plan's experts give ", job->wanted[i]));
  }
}

void SourceNode::CheckFailure(const Job& job, const absl::Status& status) {
  ++world_->stats.steps_failed;
  const std::string what = absl::StrCat(name_, ": a step failed: ", status.ToString());
  const bool closed_by_us = ReasonOf(status) == Reason::kSessionClosed;
  if (status.code() != absl::StatusCode::kUnavailable && !closed_by_us) {
    world_->oracles.Fail(absl::StrCat("steps fail with UNAVAILABLE alone: ", what));
  }
  if (world_->settled()) world_->oracles.Fail(absl::StrCat("liveness, at rest: ", what));
  if (ReasonOf(status) != Reason::kStepDeadline) return;
  for (const PlanWorker& worker : job.workers) {
    if (MetadataOf(status).at("worker") != worker.id) continue;
    const auto lost = lost_.find(worker.incarnation);
    if (lost != lost_.end() && job.submitted < lost->second && lost->second < world_->now()) {
      world_->oracles.Fail(absl::StrCat("a step waited for a lost worker: ", what));
    }
  }
}

bool SourceNode::Untouched(const Job& job) const {
  return std::count(job.y.begin(), job.y.end(), kPoison) ==
             static_cast<std::ptrdiff_t>(job.y.size()) &&
         std::count(job.y_16.begin(), job.y_16.end(), kPoison16) ==
             static_cast<std::ptrdiff_t>(job.y_16.size());
}

bool SourceNode::IsBoundTo(const PlanUpdate& plan) const {
  return runner_ != nullptr && runner_->bound_plan() != nullptr &&
         runner_->bound_plan()->plan.epoch == plan.plan.epoch &&
         runner_->bound_plan()->hash == plan.hash;
}

// Without steps, a credit is taken only until its reply has come.
void SourceNode::CheckCredits() const {
  if (runner_ == nullptr || runner_->steps_in_flight() > 0) return;
  for (const SimLink* link : world_->fabric.LinksOf(id_)) {
    const Attachment& attachment = Attachment::Of(*link);
    const std::size_t taken = attachment.credits.size() - attachment.credits.free();
    if (attachment.state != Attachment::State::kReady || taken == link->outstanding()) continue;
    world_->oracles.Fail(absl::StrCat("credits: ", name_, " has ", taken, " credits to ",
                                      attachment.worker.id, " taken and awaits ",
                                      link->outstanding(), " replies"));
  }
}

void SourceNode::CheckRest() const {
  if (runner_ == nullptr) return;
  for (const AttachmentStatus& row : runner_->Status().attachments) {
    if (row.ready && row.credits_free == row.credits) continue;
    world_->oracles.Fail(absl::StrCat("credits, at rest: ", name_, " has ", row.credits_free,
                                      " of ", row.credits, " credits to ", row.worker_id));
  }
}

}  // namespace switchyard::sim
