#include "worker/collective/source/own_rank.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr Duration kIdleWait = std::chrono::milliseconds(5);    // how often it looks at the log
constexpr Duration kRoomWait = std::chrono::microseconds(100);  // how often for room in its stream

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

}  // namespace

class OwnRank::Turn final : public RankTurn {
 public:
  explicit Turn(OwnRank* rank) : rank_(rank) {}
  [[nodiscard]] Stream& stream() override { return *rank_->options_.lane->stream; }
  absl::Status WaitForRoom(TimePoint until) override {
    rank_->mutex_.AssertHeld();
    return rank_->WaitForRoom(until);
  }
  absl::StatusOr<std::uint64_t> MakeStep(const LoggedStep& wanted, const SourcePart& part,
                                         TimePoint until) override {
    // On a stream of its own it may wait before its turn has come.
    if (part.after.has_value()) SY_RETURN_IF_ERROR(stream().WaitFor(*part.after));
    rank_->mutex_.AssertHeld();  // by Use, which has made this
    SY_ASSIGN_OR_RETURN(const LoggedStep step, rank_->Claim(wanted, part.step.tokens, until));
    return rank_->Make(step, part.step);
  }

 private:
  OwnRank* const rank_;
};

OwnRank::OwnRank(Options options)
    : options_(std::move(options)), mutex_(options_.lane->mutex), next_(log().end()) {
  if (!options_.alone) idle_ = std::thread([this] { RunIdle(); });
}

OwnRank::~OwnRank() {
  Retire();
  if (idle_.joinable()) idle_.join();
}

void OwnRank::Retire() {
  {
    const MutexLock lock(mutex_);
    retired_ = true;
    changed_.NotifyAll();
  }
  if (idle_.joinable()) log().WakeAll();
}

absl::Status OwnRank::Use(absl::FunctionRef<absl::Status(RankTurn&)> work) {
  const MutexLock lock(mutex_);
  if (retired_) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     "this source has left the group");
  }
  Turn turn(this);
  return work(turn);
}

absl::StatusOr<LoggedStep> OwnRank::Claim(const LoggedStep& wanted, std::int32_t tokens,
                                          TimePoint until) {
  // All that others have appended since is of other groups.
  if (options_.alone) next_ = std::max(next_, log().end());
  for (int attempts = 0;; ++attempts) {
    SY_RETURN_IF_ERROR(WaitForRoom(until));
    if (attempts > StepLog::kAttemptsMax) return Fail(StepLog::Unreadable());
    const std::optional<LoggedStep> found = log().At(next_);
    if (!found.has_value()) {
      switch (log().Append(next_, wanted)) {
        case StepLog::Appended::kYes:
          ++next_;
          return wanted;
        case StepLog::Appended::kTaken:
          if (log().end() <= next_ + StepLog::kSteps) continue;
          return Fail(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                                "this source has not made thousands of steps of its group, which "
                                "are no longer known"));
        case StepLog::Appended::kFull:
          return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                           "the workers are thousands of steps behind; wait for a step");
      }
    }
    ++next_;
    if (found->group != wanted.group) continue;
    if (found->Serves(wanted, tokens)) return *found;
    SY_RETURN_IF_ERROR(Make(*found, {}).status());
  }
}

absl::Status OwnRank::Fail(absl::Status why) {
  options_.fail(why);
  return why;
}

// The other ranks go by the log: one that leaves out a step would answer the next with the rows of
// another.
absl::StatusOr<std::uint64_t> OwnRank::Make(const LoggedStep& step, ExchangeStep part) {
  const std::uint64_t number = steps_.fetch_add(1);
  part.cover = step.cover;
  part.layer = step.layer;
  part.codecs = options_.codecs.Of(step.layer);
  absl::Status made = options_.exchange->Step(options_.lane->stream.get(), part);
  if (!made.ok()) return Fail(std::move(made));
  return number;
}

// A stream has room for a step again when the oldest one has ended, by its deadline.
absl::Status OwnRank::WaitForRoom(TimePoint until) {
  while (options_.lane->stream->Room() == 0) {
    if (Now() >= until) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       "the device has no room for another step of the group; wait for one");
    }
    // A queue that has moved tells nobody: its device would pay for that in every step.
    changed_.WaitUntil(mutex_, Now() + kRoomWait);
  }
  return absl::OkStatus();
}

// Passes steps of other groups. False: a step of this one is next.
bool OwnRank::SkipOthers() {
  for (;;) {
    const std::optional<LoggedStep> step = log().At(next_);
    if (!step.has_value()) return true;
    if (step->group == options_.group) return false;
    ++next_;
  }
}

// Ends the group if its step `next` was replaced before this rank made it.
void OwnRank::LookBehind(std::uint64_t next) {
  const MutexLock lock(mutex_);
  if (retired_ || next_ != next) return;
  if (log().end() <= next + StepLog::kSteps || log().At(next).has_value()) return;
  (void)Fail(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                       "this source was thousands of steps behind its group"));
  retired_ = true;
}

void OwnRank::RunIdle() {
  for (;;) {
    std::uint64_t next = 0;
    {
      const MutexLock lock(mutex_);
      if (retired_) return;
      next = next_;
    }
    if (!log().WaitFor(next, Duration::zero(), kIdleWait)) {
      LookBehind(next);
      continue;
    }
    const MutexLock lock(mutex_);
    if (SkipOthers()) continue;
    next = next_;
    // A caller that is about to come joins the step.
    const TimePoint until = Now() + options_.idle_after;
    while (!retired_ && changed_.WaitUntil(mutex_, until)) {
    }
    if (retired_) return;
    if (next_ != next) continue;
    if (options_.lane->stream->Room() == 0) continue;  // after another such wait
    const std::optional<LoggedStep> step = log().At(next);
    if (!step.has_value()) continue;
    ++next_;
    // Whoever waits for the step hears of a failure: it ends the group.
    if (step->group == options_.group) Make(*step, {}).status().IgnoreError();
  }
}

}  // namespace switchyard
