// The steps of a CollectiveRunner: how it claims them in the log, and how it makes its part.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/source/collective_runner.h"

namespace switchyard {
namespace {

constexpr Duration kIdleWait = std::chrono::milliseconds(5);    // how often it looks at its group
constexpr Duration kRoomWait = std::chrono::microseconds(100);  // how often for room in its stream

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

}  // namespace

absl::StatusOr<LoggedStep> CollectiveRunner::Claim(LayerId layer, std::int32_t tokens,
                                                   TimePoint until) {
  SourceGroup& group = *current_.group;
  const LoggedStep wanted{.group = group.number(),
                          .layer = layer,
                          // Several sources cannot know each other's tokens.
                          .cover = options_.grant.group.sources == 1
                                       ? std::max(tokens, 1)
                                       : group.options().facts.tokens_max,
                          .epoch = served_.plan.epoch.value & LoggedStep::kEpochMask};
  // All that others have appended since is of other groups.
  if (options_.grant.group.sources == 1) {
    current_.next = std::max(current_.next, group.log().end());
  }
  for (;;) {
    SY_RETURN_IF_ERROR(WaitForRoom(until));
    const std::optional<LoggedStep> found = group.log().At(current_.next);
    if (!found.has_value()) {
      switch (group.log().Append(current_.next, wanted)) {
        case StepLog::Appended::kYes:
          ++current_.next;
          return wanted;
        case StepLog::Appended::kTaken:
          if (group.log().end() <= current_.next + StepLog::kSteps) continue;
          return End(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                               "this source has not made thousands of steps of its group, "
                               "which are no longer known"));
        case StepLog::Appended::kFull:
          return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                           "the workers are thousands of steps behind; wait for a step");
      }
    }
    ++current_.next;
    if (found->group != group.number()) continue;
    if (found->layer == layer && found->epoch == wanted.epoch && found->cover >= tokens) {
      return *found;
    }
    SY_RETURN_IF_ERROR(MakeStep(*found, nullptr));
  }
}

absl::Status CollectiveRunner::End(absl::Status why) {
  current_.group->Abandon(why);
  return why;
}

// This rank's part; without tokens if there is no request. The other ranks go by the log: one that
// leaves out a step would answer the next with the rows of another.
absl::Status CollectiveRunner::MakeStep(const LoggedStep& step, const StepRequest* request) {
  ++current_.steps;
  ExchangeStep part{
      .cover = step.cover, .layer = step.layer, .codecs = current_.group->CodecsOf(step.layer)};
  if (request != nullptr) {
    part.tokens = request->tokens;
    part.x = request->x;
    part.ids = request->ids;
    part.weights = request->weights;
    part.places = places_ == nullptr ? nullptr : places_->Of(step.layer);
    part.y = request->y;
    part.y_dtype = options_.grant.request.y_dtype;
  }
  absl::Status made = current_.group->exchange().Step(options_.stream.get(), part);
  return made.ok() ? made : End(std::move(made));
}

// A stream has room for a step again when the oldest one has ended, by its deadline.
absl::Status CollectiveRunner::WaitForRoom(TimePoint until) {
  while (options_.stream->Room() == 0) {
    if (Now() >= until) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       "the device has no room for another step of the group; wait for one");
    }
    // A queue that has moved tells nobody: its device would pay for that in every step.
    stopped_.WaitUntil(mutex_, Now() + kRoomWait);
  }
  return absl::OkStatus();
}

absl::Status CollectiveRunner::MakeRound(const StepRequest& round, TimePoint until) {
  SY_ASSIGN_OR_RETURN(const LoggedStep step, Claim(round.layer, round.tokens, until));
  return MakeStep(step, &round);
}

// The step's error is that of its first round. Later ones leave the earlier ones running,
// so that the step is to be taken like any other, and then says so.
absl::Status CollectiveRunner::MakeRounds(const StepRequest& request, StepRounds* rounds) {
  rounds->Begin(current_.group->options().facts.tokens_max);
  const TimePoint until = Now() + options_.grant.request.step_deadline;
  std::int32_t first = 0;
  do {
    const StepRequest round = RoundOf(request, served_.plan.shape, options_.grant.request.y_dtype,
                                      first, rounds->at_once);
    const absl::Status made = MakeRound(round, rounds->numbers.empty() ? TimePoint::min() : until);
    if (!made.ok()) {
      if (rounds->numbers.empty()) return made;
      rounds->failed = made;
      return absl::OkStatus();
    }
    rounds->numbers.push_back(current_.steps - 1);
    first += round.tokens;
  } while (first < request.tokens);
  return absl::OkStatus();
}

// Passes steps of other groups. False: a step of this one is next.
bool CollectiveRunner::SkipOthers(const SourceGroup* group) {
  if (current_.group.get() != group) return true;
  for (;;) {
    const std::optional<LoggedStep> step = current_.group->log().At(current_.next);
    if (!step.has_value()) return true;
    if (step->group == current_.group->number()) return false;
    ++current_.next;
  }
}

// Ends the group if its step `next` was replaced before this rank made it.
void CollectiveRunner::LookBehind(const std::shared_ptr<SourceGroup>& group, std::uint64_t next) {
  const MutexLock lock(mutex_);
  if (current_.group != group || current_.next != next) return;
  if (group->log().end() <= next + StepLog::kSteps) return;
  if (group->log().At(next).has_value()) return;
  (void)End(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                      "this source was thousands of steps behind its group"));
}

// Makes this rank's part in steps of others while no Submit does.
void CollectiveRunner::RunIdle() {
  for (;;) {
    std::shared_ptr<SourceGroup> group;
    std::uint64_t next = 0;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      group = current_.group;
      next = current_.next;
      if (group == nullptr) {
        stopped_.WaitUntil(mutex_, Now() + options_.idle_after);
        continue;
      }
    }
    if (!group->log().WaitFor(next, Duration::zero(), kIdleWait)) {
      LookBehind(group, next);
      continue;
    }
    const MutexLock lock(mutex_);
    if (SkipOthers(group.get())) continue;
    next = current_.next;
    // A Submit that is about to come joins the step.
    const TimePoint until = Now() + options_.idle_after;
    while (!stopping_ && stopped_.WaitUntil(mutex_, until)) {
    }
    if (stopping_) return;
    if (current_.group != group || current_.next != next) continue;
    if (options_.stream->Room() == 0) continue;  // after another such wait
    const std::optional<LoggedStep> step = group->log().At(next);
    if (!step.has_value()) continue;
    ++current_.next;
    // Whoever waits for the step hears of a failure: it ends the group.
    if (step->group == group->number()) MakeStep(*step, nullptr).IgnoreError();
  }
}

}  // namespace switchyard
