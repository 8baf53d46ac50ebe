// The launches of graphs of a LogFollower.
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/expert/log_follower.h"

namespace switchyard {
namespace {

TimePoint Now() { return SteadyClock().Now(); }

}  // namespace

absl::Status LogFollower::Record(FollowedGroup* group, void* capturing, const LoggedStep& step,
                                 ExchangeStep part, RecordedSteps* graph) {
  if (ended_ || Find(step.group).get() != group) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     "the worker of this process has ended the group");
  }
  SY_ASSIGN_OR_RETURN(FollowedGroup::Experts experts, group->ExpertsOf(step));
  part.cover = step.cover;
  part.layer = step.layer;
  part.codecs = experts.codecs;
  part.experts = experts.table.get();
  SY_RETURN_IF_ERROR(group->exchange().Record(capturing, part));
  graph->experts.push_back(std::move(experts.table));
  return absl::OkStatus();
}

absl::Status LogFollower::BeginLaunch(FollowedGroup* group,
                                      const std::shared_ptr<const RecordedSteps>& graph,
                                      const LoggedStep& wanted, void* foreign, TimePoint until) {
  // Nothing has happened if it is none that can wait; what matters is the call below.
  SY_RETURN_IF_ERROR(stream_->Precede(foreign));
  // So that no graph runs beyond what its kernels tell apart. Nobody counts down again.
  SY_RETURN_IF_ERROR(group->exchange().CountRecorded(graph->count()));
  const auto is_launch = [&](const LoggedStep& step) {
    return step.group == wanted.group && step.is_launch();
  };
  SY_ASSIGN_OR_RETURN(const Found found, FindOwn(group, wanted, is_launch, until));
  absl::Status begun;
  if (found.step == wanted) {
    begun = stream_->Precede(foreign);
  } else {
    begun = MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
        absl::StrFormat("another rank launches a graph of %d steps, and this one a graph of %d, or "
                        "they were recorded on two plans; launch the same on all ranks",
                        found.step.cover, wanted.cover));
  }
  Pass();
  if (begun.ok()) {
    launch_ = {.group = found.group, .graph = graph, .until = Now() + group->patience()};
  } else {
    Fail(found.group, begun);
  }
  return begun;
}

absl::StatusOr<std::uint64_t> LogFollower::EndLaunch(FollowedGroup* group, void* foreign) {
  if (!launch_.has_value() || launch_->group.get() != group) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     "the graph was launched too late, or its group has ended meanwhile");
  }
  const Launch launch = *std::move(launch_);
  launch_.reset();
  const std::uint64_t first = group->steps_made.fetch_add(launch.graph->count());
  absl::Status ended = stream_->WaitFor(foreign);
  if (ended.ok()) ended = Follow({.group = launch.group, .experts = {}, .graph = launch.graph});
  if (ended.ok()) return first;
  Fail(launch.group, ended);
  return ended;
}

// An engine that has begun a launch and does not end it holds up all groups of this worker.
void LogFollower::LookForLateLaunch() {
  if (!launch_.has_value()) return;
  const bool has_ended = NumberOf(launch_->group.get()) == StepLog::kNoGroup;
  if (!has_ended && Now() < launch_->until) return;
  const std::shared_ptr<FollowedGroup> group = std::move(launch_->group);
  launch_.reset();
  if (has_ended) return;
  Fail(group, MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                        "the engine of this worker has begun the launch of a graph and not ended "
                        "it within the group's deadline"));
}

}  // namespace switchyard
