#include "worker/collective/expert/log_follower.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/shared_log.h"

namespace switchyard {
namespace {

// A sleeping thread looks by itself so often, for a process that ended between append and wake.
constexpr Duration kSleepMax = std::chrono::milliseconds(5);
// A device that takes longer has been given up by its own waits.
constexpr Duration kStepMax = std::chrono::seconds(120);

}  // namespace

LogFollower::LogFollower(std::unique_ptr<SharedLog> log, Duration spin, GroupCounts* counts)
    : spin_(spin), counts_(counts), log_(std::move(log)) {}

absl::StatusOr<std::unique_ptr<LogFollower>> LogFollower::Start(DeviceBackend* device,
                                                                std::unique_ptr<SharedLog> log,
                                                                Duration spin,
                                                                GroupCounts* counts) {
  std::unique_ptr<LogFollower> follower(new LogFollower(std::move(log), spin, counts));
  SY_ASSIGN_OR_RETURN(follower->stream_, device->MakeStream({.work_class = WorkClass::kDecode}));
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

LogFollower::~LogFollower() {
  stopping_.store(true);
  log_->log().WakeAll();
  if (thread_.joinable()) thread_.join();
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
    Reap(kStepsAhead);
    if (!Keep()) continue;
    // While steps run, their ends are looked at; a device takes some ten microseconds for one.
    const bool there =
        begun_.empty() ? steps.WaitFor(next_, spin_, kSleepMax) : steps.At(next_).has_value();
    if (!there) continue;
    const std::optional<LoggedStep> step = steps.At(next_);
    if (step.has_value()) Make(*step);
    ++next_;
    steps.Done(place_, next_);
  }
  Reap(0);
}

bool LogFollower::Keep() {
  const TimePoint now = SteadyClock().Now();
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

void LogFollower::Make(const LoggedStep& step) {
  const std::shared_ptr<FollowedGroup> group = Find(step.group);
  if (group == nullptr) return;  // this worker is not in it, or it has ended
  Reap(kStepsAhead - 1);
  const absl::Status enqueued = Enqueue(step, group);
  if (enqueued.ok()) return;
  counts_->failed.fetch_add(1, std::memory_order_relaxed);
  Fail(group, enqueued);
}

absl::Status LogFollower::Enqueue(const LoggedStep& step,
                                  const std::shared_ptr<FollowedGroup>& group) {
  SY_ASSIGN_OR_RETURN(FollowedGroup::Experts experts, group->ExpertsOf(step));
  SY_RETURN_IF_ERROR(group->exchange().Step(stream_.get(), {.cover = step.cover,
                                                            .layer = step.layer,
                                                            .codecs = experts.codecs,
                                                            .tokens = 0,
                                                            .experts = experts.table.get(),
                                                            .slot_rows = experts.rows}));
  const std::size_t event = next_event_++ % kStepsAhead;
  begun_.push_back({.group = group,
                    .experts = std::move(experts.table),
                    .event = event,
                    .since = SteadyClock().Now()});
  return stream_->Record(events_[event].get());
}

void LogFollower::Reap(std::size_t keep) {
  while (!begun_.empty()) {
    DeviceEvent& event = *events_[begun_.front().event];
    if (!event.done()) {
      if (begun_.size() <= keep) return;
      const auto until = std::chrono::steady_clock::now() + kStepMax;
      while (!event.Wait(StepLog::kKeepEvery) && std::chrono::steady_clock::now() < until) {
        (void)log_->log().Keep(place_, next_);
      }
    }
    const Begun ended = std::move(begun_.front());
    begun_.pop_front();
    absl::Status status = event.status();
    if (status.ok()) status = ended.group->exchange().Fault();
    Count(ended, status);
    if (!status.ok()) Fail(ended.group, status);
  }
}

void LogFollower::Count(const Begun& ended, const absl::Status& status) {
  if (!status.ok()) {
    counts_->failed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  counts_->steps.fetch_add(1, std::memory_order_relaxed);
  counts_->step.Observe(SteadyClock().Now() - ended.since);
}

void LogFollower::Fail(const std::shared_ptr<FollowedGroup>& group, const absl::Status& why) {
  Remove(group.get());
  group->OnFailed(why);
}

}  // namespace switchyard
