#include "worker/collective/source/collective_runner.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/group_spec.h"
#include "worker/collective/source/collective_runner_graphs.h"

namespace switchyard {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(50);
constexpr Duration kBackoffMax = std::chrono::seconds(2);
constexpr int kRefusalsMax = 2;
// A device ends every step by its own waits; whoever waits longer than this has lost it.
constexpr Duration kDeviceMax = std::chrono::seconds(120);

TimePoint Now() { return SteadyClock().Now(); }

absl::Status Mendable(const absl::Status& why) {
  const std::map<std::string, std::string> metadata = MetadataOf(why);
  return MakeError(absl::StatusCode::kUnavailable, ReasonOf(why), why.message(),
                   {metadata.begin(), metadata.end()});
}

}  // namespace

CollectiveRunner::CollectiveRunner(CollectiveRunnerOptions options)
    : options_(std::move(options)), slots_(options_.steps_max) {
  served_.plan.epoch = Epoch{};
}

CollectiveRunner::~CollectiveRunner() { Close({}); }

absl::Status CollectiveRunner::Start(TimePoint /*now*/) {
  if (options_.grant.request.strict || options_.grant.request.record_amax) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                     absl::StrCat("a collective session is neither strict nor does it record "
                                  "magnitudes",
                                  kAskForP2p));
  }
  SY_RETURN_IF_ERROR(ResolveCollective(options_.grant.plan, DemandOf(options_.grant)).status());
  Form({.plan = options_.grant.plan, .hash = options_.grant.hash});
  return absl::OkStatus();
}

void CollectiveRunner::Form(const PlanUpdate& on) {
  SourceGroup::Options group;
  group.channel = options_.channel;
  group.device = options_.device.get();
  group.lane = options_.lane;
  group.host = options_.host;
  group.ring_dir = options_.ring_dir;
  group.idle_after = options_.idle_after;
  group.grant = options_.grant;
  group.grant.plan = on.plan;
  group.grant.hash = on.hash;
  group.wake = options_.wake;
  forming_on_ = on;
  form_again_.reset();
  const auto facts = ResolveCollective(on.plan, DemandOf(options_.grant));
  if (!facts.ok()) {  // another plan may come
    last_error_ = facts.status();
    return;
  }
  group.facts = *facts;
  forming_ = std::make_shared<SourceGroup>(std::move(group));
}

void CollectiveRunner::OnPlan(const PlanUpdate& update, TimePoint /*now*/) {
  const Epoch newest = pending_.has_value()  ? pending_->plan.epoch
                       : forming_ != nullptr ? forming_on_.plan.epoch
                                             : served_.plan.epoch;
  if (update.plan.epoch <= newest) return;
  pending_ = update;
  binding_ = false;
  form_again_.reset();  // on an older plan
}

RunnerProgress CollectiveRunner::Poll(TimePoint now) {
  RunnerProgress progress;
  if (!closed_) {
    TraceEnds(now);
    progress.worked = LookForEnd(now);
    progress.worked |= FollowForming(now);
    progress.worked |= FollowPlan(now);
    if (form_again_.has_value() && forming_ == nullptr && now >= *form_again_) {
      Form(forming_on_);
      progress.worked = true;
    }
    if (!progress.worked && form_again_.has_value()) progress.wake_at = *form_again_;
  }
  progress.why = CheckOpen();
  if (was_ready_) {
    progress.state = RunnerProgress::State::kReady;
  } else if (!fatal_.ok()) {
    progress.state = RunnerProgress::State::kFailed;
    progress.why = fatal_;
  }
  return progress;
}

// A group that is ready takes over from the one before it.
bool CollectiveRunner::FollowForming(TimePoint now) {
  if (forming_ == nullptr || forming_->state() == SourceGroup::State::kForming) return false;
  const std::shared_ptr<SourceGroup> formed = std::move(forming_);
  forming_ = nullptr;
  last_error_ = formed->state() == SourceGroup::State::kEnded ? formed->why() : TakeOver(formed);
  if (!last_error_.ok()) {
    // Every other code says that this group can never be, but a rank that ends while others reach
    // for its memory looks like that, too, once.
    if (!absl::IsUnavailable(last_error_)) ++refusals_;
    if (!was_ready_ && refusals_ == kRefusalsMax) fatal_ = last_error_;
    backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kBackoffMax);
    form_again_ = now + backoff_;
    return true;
  }
  former_epochs_.clear();
  was_ready_ = true;
  backoff_ = {};
  return true;
}

absl::Status CollectiveRunner::TakeOver(const std::shared_ptr<SourceGroup>& formed) {
  SY_ASSIGN_OR_RETURN(places_, MakePlaces(formed->rank(), forming_on_.plan));
  LetGo();
  current_ = formed;
  ++takeovers_;
  served_ = forming_on_;
  binding_ = false;  // it was at the group before
  return absl::OkStatus();
}

bool CollectiveRunner::FollowPlan(TimePoint /*now*/) {
  bool worked = false;
  const std::shared_ptr<SourceGroup> group = current_;
  std::erase_if(former_epochs_, [&](Epoch epoch) {
    if (group == nullptr || InFlight(group.get(), epoch)) return false;
    if (graphs_ != nullptr && graphs_->Has(group.get(), epoch)) return false;
    group->Release(epoch);
    return true;
  });
  if (!pending_.has_value() || forming_ != nullptr) return worked;
  const auto facts = ResolveCollective(pending_->plan, DemandOf(options_.grant));
  const bool same = group != nullptr && facts.ok() && group->options().facts == *facts &&
                    SameWorkers(group->options().grant.plan, pending_->plan);
  if (!same) {
    const PlanUpdate on = *std::exchange(pending_, std::nullopt);
    Form(on);
    return true;
  }
  if (!binding_) {
    group->Bind({.epoch = pending_->plan.epoch,
                 .hash = pending_->hash,
                 .step_deadline = options_.grant.request.step_deadline});
    binding_ = true;
    return true;
  }
  const absl::StatusOr<bool> bound = group->IsBound(pending_->plan.epoch);
  if (!bound.ok()) {  // the next plan may be bound
    last_error_ = bound.status();
    pending_.reset();
    return true;
  }
  if (!*bound) return worked;
  auto places = MakePlaces(group->rank(), pending_->plan);
  if (!places.ok()) {
    last_error_ = places.status();
    pending_.reset();
    return true;
  }
  places_ = *std::move(places);
  former_epochs_.push_back(served_.plan.epoch);
  served_ = *std::exchange(pending_, std::nullopt);
  return true;
}

void CollectiveRunner::LetGo() {
  if (current_ == nullptr) return;
  Former former{.group = std::exchange(current_, nullptr), .ended = nullptr};
  SourceRank& rank = former.group->rank();
  // Its steps that run use its memory until they end, which the end of the group makes them do
  // soon. Without an event none runs any more: the device is lost, or the rank's worker has ended.
  (void)rank.Use([&](RankTurn& turn) {
    turn.WaitForRoom(Now() + kDeviceMax).IgnoreError();
    former.ended = turn.stream().MakeEvent();
    return turn.stream().Record(former.ended.get());
  });
  // A graph of it may be launched again.
  if (graphs_ != nullptr && graphs_->Has(former.group.get())) {
    rank.KeepLaunches();
  } else {
    rank.Retire();
  }
  if (former.ended != nullptr) former_.push_back(std::move(former));
}

absl::StatusOr<std::shared_ptr<const StepPlaces>> CollectiveRunner::MakePlaces(SourceRank& rank,
                                                                               const Plan& plan) {
  std::shared_ptr<const StepPlaces> places;
  SY_RETURN_IF_ERROR(rank.Use([&](RankTurn& turn) {
    SY_ASSIGN_OR_RETURN(places, StepPlaces::Make(&rank.device(), &turn.stream(), plan));
    return absl::OkStatus();
  }));
  return places;
}

bool CollectiveRunner::LookForEnd(TimePoint now) {
  std::erase_if(former_, [&](const Former& former) { return former.ended->done(); });
  if (current_ == nullptr || current_->state() != SourceGroup::State::kEnded) return false;
  // Whatever it was, a new group has another chance; errors of forming one may be final.
  last_error_ = Mendable(current_->why());
  LetGo();
  former_epochs_.clear();
  if (pending_.has_value() || forming_ != nullptr) return true;
  // Else it is a newer plan, which may have been found to make no group.
  if (forming_on_.plan.epoch < served_.plan.epoch) forming_on_ = served_;
  backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kBackoffMax);
  form_again_ = now + backoff_;
  return true;
}

absl::Status CollectiveRunner::CheckOpen() const {
  if (closed_) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                     "the session is closed; open another");
  }
  if (current_ != nullptr && current_->state() == SourceGroup::State::kReady) {
    return absl::OkStatus();
  }
  if (!was_ready_) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     absl::StrCat("the session's group is not formed yet",
                                  last_error_.ok() ? "" : "; last: ", last_error_.message()));
  }
  if (last_error_.ok()) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     "the session's group has ended; another one is being formed");
  }
  // The plan of now makes no group: waiting is no use.
  return absl::IsUnavailable(last_error_) ? GroupEnded(last_error_) : last_error_;
}

absl::StatusOr<StepLimits> CollectiveRunner::LimitsOf(LayerId layer) const {
  SY_RETURN_IF_ERROR(CheckOpen());
  if (served_.plan.FindLayer(layer) == nullptr) return UnknownLayer(served_.plan, layer);
  std::int32_t max_tokens = options_.grant.request.max_tokens;
  // Rounds would be steps that the other sources, with fewer tokens, do not submit.
  if (options_.grant.group.in_step) {
    max_tokens = std::min(max_tokens, current_->options().facts.tokens_max);
  }
  return StepLimits{.shape = served_.plan.shape,
                    .y_dtype = options_.grant.request.y_dtype,
                    .max_tokens = max_tokens,
                    .step_deadline = options_.grant.request.step_deadline,
                    .host_memory = options_.device->host_access(),
                    .y_on_stream = !options_.device->host_access()};
}

absl::Status CollectiveRunner::CopyIn(Slot& slot, StepRequest* request) const {
  const MoeShape& shape = served_.plan.shape;
  const OpenSessionRequest& session = options_.grant.request;
  SY_RETURN_IF_ERROR(HostTensors::Reserve(
      &current_->rank().device(),
      {.shape = shape, .tokens_max = session.max_tokens, .y_dtype = session.y_dtype},
      request->tokens, &slot.copies));
  *request = slot.copies->Take(*request);
  return CheckStepIds(*request, shape.experts);
}

absl::Status CollectiveRunner::CheckTensors(const StepRequest& request) const {
  const MoeShape& shape = served_.plan.shape;
  SY_RETURN_IF_ERROR(CheckDense(request, shape.hidden));
  return options_.device->host_access() ? CheckStepIds(request, shape.experts) : absl::OkStatus();
}

absl::StatusOr<std::uint32_t> CollectiveRunner::FreeSlot() const {
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].used) return s;
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
      absl::StrFormat("%d steps are in flight or not taken; wait for one", slots_.size()));
}

absl::Status CollectiveRunner::CheckRounds(const Slot& slot, SourceRank& rank) const {
  // Then Submit has looked at them.
  if (slot.copied || options_.device->host_access()) return absl::OkStatus();
  return CheckRoundIds(slot.rounds, rank.steps(), rank.exchange());
}

absl::StatusOr<StepTicket> CollectiveRunner::Submit(const StepRequest& request, TimePoint now) {
  Poll(now);
  SY_ASSIGN_OR_RETURN(StepLimits limits, LimitsOf(request.layer));
  SY_RETURN_IF_ERROR(ValidateStep(request, limits));
  SY_ASSIGN_OR_RETURN(const bool copied,
                      NeedCopies(current_->rank().device(), options_.device_name, request));
  if (copied) {
    limits.host_memory = true;
    limits.y_on_stream = false;
    SY_RETURN_IF_ERROR(ValidateStep(request, limits));
  }
  SY_RETURN_IF_ERROR(CheckDeadline(request, options_.grant.request.step_deadline));
  SY_ASSIGN_OR_RETURN(const std::uint32_t index, FreeSlot());
  Slot& slot = slots_[index];
  const StepKey key{options_.grant.session, options_.source, StepId{++last_step_}};
  slot.trace.Begin(options_.tracer->Samples(key) ? options_.tracer.get() : nullptr, key, now);
  StepRequest part = request;
  if (copied) SY_RETURN_IF_ERROR(CopyIn(slot, &part));
  slot.copied = copied;
  if (!copied) SY_RETURN_IF_ERROR(CheckTensors(request));
  SY_RETURN_IF_ERROR(
      current_->rank().Use([&](RankTurn& turn) { return Enqueue(request, part, slot, turn); }));
  slot.group = current_;
  slot.places = places_;
  slot.epoch = served_.plan.epoch;
  slot.used = true;
  ++slot.generation;
  if (slot.trace.traced()) {
    ++traced_;
    slot.trace.Enqueued(request.layer, slot.epoch,
                        options_.grant.request.mode.value_or(DispatchMode::kNormal), request.tokens,
                        Now());
  }
  return StepTicket{.slot = index, .generation = slot.generation};
}

absl::Status CollectiveRunner::Enqueue(const StepRequest& request, const StepRequest& part,
                                       Slot& slot, RankTurn& turn) {
  if (slot.event_of != takeovers_) {
    slot.event = turn.stream().MakeEvent();
    slot.event_of = takeovers_;
  }
  // The host has read what it copies, and so has a device that is the host.
  std::optional<void*> after;
  if (!slot.copied && !options_.device->host_access()) after = request.stream;
  SY_RETURN_IF_ERROR(MakeRounds(part, after, turn, &slot.rounds));
  SY_RETURN_IF_ERROR(turn.stream().Record(slot.event.get()));
  return request.y_on_stream ? turn.stream().Precede(request.stream) : absl::OkStatus();
}

absl::StatusOr<std::uint64_t> CollectiveRunner::MakeRound(const StepRequest& round,
                                                          std::optional<void*> after,
                                                          RankTurn& turn, TimePoint until) {
  // Several sources cannot know each other's tokens.
  const std::int32_t cover = options_.grant.group.sources == 1
                                 ? std::max(round.tokens, 1)
                                 : current_->options().facts.tokens_max;
  return turn.MakeStep(Wanted(round, cover), {.step = PartOf(round), .after = after}, until);
}

LoggedStep CollectiveRunner::Wanted(const StepRequest& round, std::int32_t cover) const {
  return {.group = current_->rank().group(),
          .layer = round.layer,
          .cover = cover,
          .epoch = served_.plan.epoch.value & LoggedStep::kEpochMask};
}

ExchangeStep CollectiveRunner::PartOf(const StepRequest& round) const {
  return {.tokens = round.tokens,
          .x = round.x,
          .ids = round.ids,
          .weights = round.weights,
          .y = round.y,
          .places = places_ == nullptr ? nullptr : places_->Of(round.layer),
          .y_dtype = options_.grant.request.y_dtype};
}

// The step's error is that of its first round. Later ones leave the earlier ones running,
// so that the step is to be taken like any other, and then says so.
absl::Status CollectiveRunner::MakeRounds(const StepRequest& request, std::optional<void*> after,
                                          RankTurn& turn, StepRounds* rounds) {
  rounds->Begin(current_->options().facts.tokens_max);
  const TimePoint until = Now() + options_.grant.request.step_deadline;
  std::int32_t first = 0;
  do {
    const StepRequest round = RoundOf(request, served_.plan.shape, options_.grant.request.y_dtype,
                                      first, rounds->at_once);
    const absl::StatusOr<std::uint64_t> made = rounds->numbers.empty()
                                                   ? MakeRound(round, after, turn, TimePoint::min())
                                                   : MakeRound(round, std::nullopt, turn, until);
    if (!made.ok()) {
      if (rounds->numbers.empty()) return made.status();
      rounds->failed = made.status();
      return absl::OkStatus();
    }
    rounds->numbers.push_back(*made);
    first += round.tokens;
  } while (first < request.tokens);
  return absl::OkStatus();
}

bool CollectiveRunner::InFlight(const SourceGroup* group, Epoch epoch) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.used && slot.group.get() == group && slot.epoch == epoch && !slot.event->done();
  });
}

bool CollectiveRunner::awaits_device() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.used && !slot.event->done(); });
}

const CollectiveRunner::Slot* CollectiveRunner::Find(const StepTicket& ticket) const {
  if (ticket.slot >= slots_.size()) return nullptr;
  const Slot& slot = slots_[ticket.slot];
  return slot.used && !slot.begins && slot.generation == ticket.generation ? &slot : nullptr;
}

absl::StatusOr<bool> CollectiveRunner::IsDone(const StepTicket& ticket) const {
  const Slot* slot = Find(ticket);
  if (slot != nullptr) return slot->event->done();
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                   "the step was taken before, or never submitted");
}

absl::Status CollectiveRunner::Take(const StepTicket& ticket, TimePoint now) {
  SY_ASSIGN_OR_RETURN(const bool done, IsDone(ticket));
  if (!done) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                     "a step of a group cannot be taken back; it ends by its deadline");
  }
  Slot& slot = slots_[ticket.slot];
  slot.used = false;
  const std::shared_ptr<SourceGroup> group = std::move(slot.group);
  const absl::Status result = ResultOf(slot, group);
  if (slot.trace.traced()) --traced_;
  slot.trace.End(result, now);
  return result;
}

absl::Status CollectiveRunner::ResultOf(Slot& slot, const std::shared_ptr<SourceGroup>& group) {
  SY_RETURN_IF_ERROR(slot.event->status());
  const absl::Status fault = group->rank().exchange().Fault();
  // Steps before the one that failed are results, unless their own ids were wrong.
  if (fault.ok() || slot.rounds.numbers.back() < StepOfFault(fault)) {
    SY_RETURN_IF_ERROR(slot.rounds.failed);
    SY_RETURN_IF_ERROR(CheckRounds(slot, group->rank()));
    if (slot.copied) slot.copies->Give();
    return absl::OkStatus();
  }
  // A worker that has ended the group knows more than the device, which only missed some rank.
  if (group->state() == SourceGroup::State::kEnded) return GroupEnded(group->why());
  // No later step of it is a result, whether or not the workers have seen that.
  group->Abandon(fault);
  return fault;
}

void CollectiveRunner::Close(TimePoint /*now*/) {
  if (closed_) return;
  closed_ = true;
  for (const Slot& slot : slots_) {
    if (slot.used && !slot.event->done()) (void)slot.event->Wait(kDeviceMax);
  }
  graphs_.reset();  // its caller launches none any more
  LetGo();
  for (const Former& former : former_) (void)former.ended->Wait(kDeviceMax);
  former_.clear();
  forming_.reset();
}

RunnerStatus CollectiveRunner::Status() const {
  RunnerStatus status;
  status.grant = options_.grant;
  if (was_ready_) {
    status.grant.plan = served_.plan;
    status.grant.hash = served_.hash;
    status.epoch = served_.plan.epoch;
  }
  status.steps_in_flight = static_cast<std::uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.used; }));
  const absl::Status open = CheckOpen();
  for (const PlanWorker& worker : status.grant.plan.workers) {
    AttachmentStatus row;
    row.worker_id = worker.id;
    row.ready = open.ok();
    row.request_path = row.reply_path = "device";
    row.credits = options_.steps_max;
    row.credits_free = options_.steps_max - status.steps_in_flight;
    if (!open.ok()) row.last_error = std::string(open.message());
    status.attachments.push_back(std::move(row));
  }
  return status;
}

}  // namespace switchyard
