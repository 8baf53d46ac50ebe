#include "worker/collective/expert/log_follower.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/shared_log.h"

namespace switchyard {
namespace {

// A sleeping thread looks by itself so often, for a process that ended between append and wake.
constexpr Duration kSleepMax = std::chrono::milliseconds(5);
// How often somebody looks who waits for the device, or for a source.
constexpr Duration kLookEvery = std::chrono::microseconds(100);
// A device that takes longer has been given up by its own waits.
constexpr Duration kStepMax = std::chrono::seconds(120);

TimePoint Now() { return SteadyClock().Now(); }

absl::Status GroupHasEnded() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   "the worker of this process has ended the group");
}

}  // namespace

class LogFollower::Turn final : public RankTurn {
 public:
  Turn(LogFollower* follower, FollowedGroup* group) : follower_(follower), group_(group) {}
  [[nodiscard]] Stream& stream() override { return *follower_->stream_; }
  absl::Status WaitForRoom(TimePoint until) override {
    follower_->turn_.AssertHeld();
    return follower_->WaitForRoom(until);
  }
  absl::StatusOr<std::uint64_t> MakeStep(const LoggedStep& wanted, const SourcePart& part,
                                         TimePoint until) override {
    follower_->turn_.AssertHeld();  // by Use, which has made this
    return follower_->MakeFor(group_, wanted, part, until);
  }
  absl::Status Record(void* capturing, const LoggedStep& step, const ExchangeStep& part,
                      RecordedSteps* graph) override {
    follower_->turn_.AssertHeld();
    return follower_->Record(group_, capturing, step, part, graph);
  }
  absl::Status BeginLaunch(const std::shared_ptr<const RecordedSteps>& graph,
                           const LoggedStep& wanted, void* foreign, TimePoint until) override {
    follower_->turn_.AssertHeld();
    return follower_->BeginLaunch(group_, graph, wanted, foreign, until);
  }
  absl::StatusOr<std::uint64_t> EndLaunch(void* foreign) override {
    follower_->turn_.AssertHeld();
    return follower_->EndLaunch(group_, foreign);
  }

 private:
  LogFollower* const follower_;
  FollowedGroup* const group_;
};

LogFollower::LogFollower(const Options& options, std::unique_ptr<SharedLog> log)
    : options_(options), log_(std::move(log)) {}

absl::StatusOr<std::shared_ptr<LogFollower>> LogFollower::Start(const Options& options,
                                                                std::unique_ptr<SharedLog> log) {
  std::shared_ptr<LogFollower> follower(new LogFollower(options, std::move(log)));
  SY_ASSIGN_OR_RETURN(
      follower->stream_,
      options.device->MakeStream({.work_class = WorkClass::kDecode,
                                  .on_progress = [raw = follower.get()] { raw->wakes_.Call(); }}));
  for (auto& event : follower->events_) event = follower->stream_->MakeEvent();
  StepLog& steps = follower->log_->log();
  follower->next_ = steps.end();
  follower->place_ = steps.Enter(follower->next_);
  if (follower->place_.number == StepLog::kNoPlace) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                     "too many workers follow one log of steps");
  }
  follower->thread_ = std::thread([raw = follower.get()] { raw->Run(); });
  return follower;
}

LogFollower::~LogFollower() { Stop(); }

void LogFollower::Stop() {
  stopping_.store(true);
  log_->log().WakeAll();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(turn_);
  if (std::exchange(ended_, true)) return;
  while (!Reap(0)) moved_.WaitUntil(turn_, Now() + kLookEvery);
  log_->log().Leave(place_);
}

void LogFollower::Add(std::uint32_t number, std::shared_ptr<FollowedGroup> group) {
  const MutexLock lock(mutex_);
  groups_[number] = std::move(group);
}

bool LogFollower::Has(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  return groups_.contains(number);
}

std::uint32_t LogFollower::NumberOf(const FollowedGroup* group) const {
  const MutexLock lock(mutex_);
  const auto at = std::find_if(groups_.begin(), groups_.end(),
                               [&](const auto& entry) { return entry.second.get() == group; });
  return at == groups_.end() ? StepLog::kNoGroup : at->first;
}

void LogFollower::Remove(const FollowedGroup* group) {
  std::shared_ptr<FollowedGroup> removed;  // dropped without the lock
  const MutexLock lock(mutex_);
  const auto at = std::find_if(groups_.begin(), groups_.end(),
                               [&](const auto& entry) { return entry.second.get() == group; });
  if (at == groups_.end()) return;
  removed = std::move(at->second);
  groups_.erase(at);
}

std::uint32_t LogFollower::TakeNumber() {
  const MutexLock lock(mutex_);
  return log_->log().TakeGroup(place_);
}

void LogFollower::GiveNumber(std::uint32_t number) {
  const MutexLock lock(mutex_);
  log_->log().GiveGroup(place_, number);
}

std::vector<std::shared_ptr<FollowedGroup>> LogFollower::Groups() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<FollowedGroup>> groups;
  for (const auto& [number, group] : groups_) groups.push_back(group);
  return groups;
}

std::shared_ptr<FollowedGroup> LogFollower::Find(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const auto at = groups_.find(number);
  return at == groups_.end() ? nullptr : at->second;
}

void LogFollower::Run() {
  StepLog& steps = log_->log();
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (callers_.load(std::memory_order_relaxed) > 0) {
      std::this_thread::yield();
      continue;
    }
    bool resting = false;
    {
      const MutexLock lock(turn_);
      Reap(kStepsAhead);
      if (!Keep()) continue;
      LookForLateLaunch();
      resting = begun_.empty();
    }
    const std::uint64_t next = next_.load();
    // While steps run, their ends are looked at; a device takes some ten microseconds for one.
    const bool there =
        resting ? steps.WaitFor(next, options_.spin, kSleepMax) : steps.At(next).has_value();
    if (!there) continue;
    const MutexLock lock(turn_);
    if (next_.load() == next) Advance();
  }
}

void LogFollower::Advance() {
  const std::optional<LoggedStep> step = log_->log().At(next_);
  if (!step.has_value()) return Pass();
  if (launch_.has_value() || IsLeft(*step) || !Reap(kStepsAhead - 1)) {
    moved_.WaitUntil(turn_, Now() + kLookEvery);
    return;
  }
  MakeNext(*step);
}

void LogFollower::Pass() {
  const std::uint64_t next = next_ + 1;
  next_ = next;
  log_->log().Done(place_, next);
}

bool LogFollower::Keep() {
  const TimePoint now = Now();
  if (now - kept_ < StepLog::kKeepEvery) return true;
  StepLog& steps = log_->log();
  if (steps.Keep(place_, next_)) {
    kept_ = now;
    return true;
  }
  const absl::Status why =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                "the worker did not go on for seconds, and the steps of its groups went on without "
                "it; they are formed again");
  for (const auto& group : Groups()) Fail(group, why);
  next_ = steps.end();
  {
    const MutexLock lock(mutex_);
    place_ = steps.Enter(next_);
  }
  if (place_.number == StepLog::kNoPlace) (void)steps.WaitFor(next_, Duration::zero(), kSleepMax);
  return false;
}

bool LogFollower::IsLeft(const LoggedStep& step, bool* waits) {
  const std::shared_ptr<FollowedGroup> group = Find(step.group);
  if (group == nullptr || !group->has_source.load(std::memory_order_relaxed)) return false;
  if (!step.is_launch() && group->only_launches.load(std::memory_order_relaxed)) return false;
  const TimePoint now = Now();
  if (seen_ != next_) {
    seen_ = next_;
    seen_at_ = now;
  }
  // A source on another plan by now passes the step, and means the next one.
  const bool is_awaited =
      step.is_launch() || (group->in_step.load(std::memory_order_relaxed) &&
                           group->source_epoch.load(std::memory_order_relaxed) == step.epoch);
  if (waits != nullptr) *waits = is_awaited;
  return now - seen_at_ < (is_awaited ? group->patience() : options_.idle_after);
}

void LogFollower::MakeNext(const LoggedStep& step) {
  const std::shared_ptr<FollowedGroup> group = Find(step.group);
  // Without one, this worker is not in it, or it has ended.
  if (group != nullptr && step.is_launch()) {
    Fail(group, MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                          absl::StrFormat("another rank has launched a graph of %d steps, and the "
                                          "engine of this worker has not; launch graphs on all "
                                          "ranks of a group",
                                          step.cover)));
  } else if (group != nullptr) {
    Make(step, group, {}).IgnoreError();
  }
  Pass();
}

absl::Status LogFollower::Use(FollowedGroup* group,
                              absl::FunctionRef<absl::Status(RankTurn&)> work) {
  absl::Status done;
  {
    callers_.fetch_add(1, std::memory_order_relaxed);
    const MutexLock lock(turn_);
    callers_.fetch_sub(1, std::memory_order_relaxed);
    if (ended_) return GroupHasEnded();
    Turn turn(this, group);
    done = work(turn);
  }
  moved_.NotifyOne();  // the thread may wait for this source
  return done;
}

void LogFollower::Abandon(FollowedGroup* group) {
  group->has_source.store(false);
  const MutexLock lock(turn_);
  if (launch_.has_value() && launch_->group.get() == group) launch_.reset();
}

absl::StatusOr<std::uint64_t> LogFollower::MakeFor(FollowedGroup* group, const LoggedStep& wanted,
                                                   const SourcePart& part, TimePoint until) {
  group->source_epoch.store(wanted.epoch, std::memory_order_relaxed);
  const auto serves = [&](const LoggedStep& step) { return step.Serves(wanted, part.step.tokens); };
  SY_ASSIGN_OR_RETURN(const Found found, FindOwn(group, wanted, serves, until));
  const std::uint64_t number = group->steps_made.load();
  // Not before it is this step's turn: the whole stream waits then, and others' steps with it.
  const absl::Status waits =
      part.after.has_value() ? stream_->WaitFor(*part.after) : absl::OkStatus();
  const absl::Status made = Make(found.step, found.group, waits.ok() ? part.step : ExchangeStep());
  Pass();
  SY_RETURN_IF_ERROR(waits);
  SY_RETURN_IF_ERROR(made);
  return number;
}

absl::StatusOr<LogFollower::Found> LogFollower::FindOwn(
    const FollowedGroup* group, const LoggedStep& wanted,
    absl::FunctionRef<bool(const LoggedStep&)> is_own, TimePoint until) {
  for (int attempts = 0;; ++attempts) {
    SY_RETURN_IF_ERROR(WaitForRoom(until));
    // It may end at any time: what is found is kept.
    std::shared_ptr<FollowedGroup> own = Find(wanted.group);
    if (ended_ || own.get() != group) return GroupHasEnded();
    if (attempts > StepLog::kAttemptsMax) {
      Fail(own, StepLog::Unreadable());
      return StepLog::Unreadable();
    }
    SY_ASSIGN_OR_RETURN(const std::optional<LoggedStep> next, Look(wanted));
    if (!next.has_value()) continue;
    if (is_own(*next)) return Found{.step = *next, .group = std::move(own)};
    bool waits = false;
    if ((next->is_launch() || next->group != wanted.group) && IsLeft(*next, &waits)) {
      attempts = 0;
      SY_RETURN_IF_ERROR(WaitForTurn(waits, until));
      continue;
    }
    MakeNext(*next);
  }
}

absl::StatusOr<std::optional<LoggedStep>> LogFollower::Look(const LoggedStep& wanted) {
  StepLog& steps = log_->log();
  const std::optional<LoggedStep> found = steps.At(next_);
  if (found.has_value()) return found;
  switch (steps.Append(next_, wanted)) {
    case StepLog::Appended::kYes:
      return std::optional<LoggedStep>(wanted);
    case StepLog::Appended::kTaken:
      // Else as Keep is about to find.
      if (steps.end() <= next_ + StepLog::kSteps) return std::optional<LoggedStep>();
      return GroupHasEnded();
    case StepLog::Appended::kFull:
      break;
  }
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                   "the workers are thousands of steps behind; wait for a step");
}

absl::Status LogFollower::WaitForTurn(bool waits, TimePoint until) {
  if (!waits || Now() < std::max(until, seen_at_ + options_.idle_after)) {
    moved_.WaitUntil(turn_, Now() + kLookEvery);
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                   "other ranks have begun a launch, or a step of another session, that this "
                   "engine has to make first; make launches and steps in the same order on all "
                   "ranks");
}

absl::Status LogFollower::WaitForRoom(TimePoint until) {
  const TimePoint begun = Now();
  while (launch_.has_value() || !Reap(kStepsAhead - 1)) {
    const bool launches = launch_.has_value();
    // A launch ends soon, unless its engine waits for this call.
    if (Now() >= (launches ? begun + options_.idle_after : until)) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       launches ? "the launch of a graph has begun and not ended; end it first"
                                : "the device has no room for another step of the group; wait for "
                                  "one");
    }
    moved_.WaitUntil(turn_, Now() + kLookEvery);
  }
  return absl::OkStatus();
}

absl::Status LogFollower::Make(const LoggedStep& step, const std::shared_ptr<FollowedGroup>& group,
                               ExchangeStep part) {
  group->steps_made.fetch_add(1);
  absl::Status enqueued = Enqueue(step, group, part);
  if (enqueued.ok()) return enqueued;
  options_.counts->failed.fetch_add(1, std::memory_order_relaxed);
  Fail(group, enqueued);
  return enqueued;
}

absl::Status LogFollower::Enqueue(const LoggedStep& step,
                                  const std::shared_ptr<FollowedGroup>& group, ExchangeStep part) {
  SY_ASSIGN_OR_RETURN(FollowedGroup::Experts experts, group->ExpertsOf(step));
  part.cover = step.cover;
  part.layer = step.layer;
  part.codecs = experts.codecs;
  part.experts = experts.table.get();
  part.slot_rows = experts.rows;
  SY_RETURN_IF_ERROR(group->exchange().Step(stream_.get(), part));
  return Follow({.group = group, .experts = std::move(experts.table)});
}

absl::Status LogFollower::Follow(Begun begun) {
  begun.event = next_event_++ % kStepsAhead;
  begun.since = Now();
  const std::size_t event = begun.event;
  begun_.push_back(std::move(begun));
  return stream_->Record(events_[event].get());
}

bool LogFollower::Reap(std::size_t keep) {
  while (!begun_.empty()) {
    const DeviceEvent& event = *events_[begun_.front().event];
    if (!event.done() && Now() - begun_.front().since < kStepMax) return begun_.size() <= keep;
    const Begun ended = std::move(begun_.front());
    begun_.pop_front();
    absl::Status status = event.status();
    if (status.ok()) status = ended.group->exchange().Fault();
    Count(ended, status);
    if (!status.ok()) Fail(ended.group, status);
  }
  return true;
}

void LogFollower::Count(const Begun& ended, const absl::Status& status) {
  if (!status.ok()) {
    options_.counts->failed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t steps = ended.graph == nullptr ? 1 : ended.graph->count();
  options_.counts->steps.fetch_add(steps, std::memory_order_relaxed);
  if (ended.graph != nullptr) return;  // its time is also that of the engine's own work
  options_.counts->step.Observe(Now() - ended.since);
}

void LogFollower::Fail(const std::shared_ptr<FollowedGroup>& group, const absl::Status& why) {
  Remove(group.get());
  group->OnFailed(why);
}

}  // namespace switchyard
