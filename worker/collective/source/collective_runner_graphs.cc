// The graphs of a CollectiveRunner.
#include "worker/collective/source/collective_runner_graphs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status OutOfOrder(absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder, what);
}

absl::Status RecordAgain() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                   "another plan serves than the one that the graph is of; record it again, on all "
                   "ranks of the group");
}

}  // namespace

bool CollectiveRunner::Graphs::Has(const SourceGroup* group) const {
  return std::any_of(graphs_.begin(), graphs_.end(),
                     [&](const auto& entry) { return entry.second.group.get() == group; });
}

bool CollectiveRunner::Graphs::Has(const SourceGroup* group, Epoch epoch) const {
  return std::any_of(graphs_.begin(), graphs_.end(), [&](const auto& entry) {
    return entry.second.group.get() == group && entry.second.epoch == epoch;
  });
}

absl::StatusOr<CollectiveRunner::Graphs::Graph*> CollectiveRunner::Graphs::Find(Id id) {
  const auto at = graphs_.find(id);
  if (at == graphs_.end()) return OutOfOrder("the graph is closed; open another");
  return &at->second;
}

absl::StatusOr<StepGraphs::Id> CollectiveRunner::Graphs::Open(TimePoint now) {
  runner_->Poll(now);
  SY_RETURN_IF_ERROR(runner_->CheckOpen());
  const CollectiveGroup& facts = runner_->current_->options().facts;
  const auto sources = static_cast<std::int32_t>(facts.source_ranks.size());
  if (facts.ranks() != facts.workers || sources != facts.workers) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
        absl::StrFormat("the group has %d workers and %d sources, %d of them with ranks of their "
                        "own; in a graph every rank is a worker and a source of one process, so "
                        "name the workers of all ranks as hosts",
                        facts.workers, sources, facts.ranks() - facts.workers));
  }
  if (graphs_.size() >= kGraphsMax) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                     absl::StrFormat("the session has %d graphs open; close one", graphs_.size()));
  }
  graphs_.emplace(++last_, Graph{.group = runner_->current_,
                                 .of = runner_->takeovers_,
                                 .epoch = runner_->served_.plan.epoch,
                                 .places = runner_->places_,
                                 .steps = std::make_shared<RecordedSteps>()});
  return last_;
}

absl::Status CollectiveRunner::Graphs::CheckStep(const Graph& graph,
                                                 const StepRequest& request) const {
  if (graph.was_launched) return OutOfOrder("the graph was launched; open another to record");
  if (graph.group != runner_->current_ || graph.epoch != runner_->epoch()) return RecordAgain();
  SY_ASSIGN_OR_RETURN(StepLimits limits, runner_->LimitsOf(request.layer));
  const std::int32_t at_once = graph.group->options().facts.tokens_max;
  limits.max_tokens = std::min(limits.max_tokens, at_once);  // rounds are for steps one by one
  SY_RETURN_IF_ERROR(ValidateStep(request, limits));
  SY_ASSIGN_OR_RETURN(const bool copied, NeedCopies(graph.group->rank().device(),
                                                    runner_->options_.device_name, request));
  if (copied) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "the tensors of a step in a graph are memory of its device");
  }
  SY_RETURN_IF_ERROR(CheckDense(request, limits.shape.hidden));
  SY_RETURN_IF_ERROR(CheckDeadline(request, runner_->options_.grant.request.step_deadline));
  if (graph.steps->count() < kStepsMax) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrFormat("a graph has at most %d steps", kStepsMax));
}

absl::Status CollectiveRunner::Graphs::Add(Id id, const StepRequest& request) {
  SY_ASSIGN_OR_RETURN(Graph * graph, Find(id));
  SY_RETURN_IF_ERROR(CheckStep(*graph, request));
  const LoggedStep step = runner_->Wanted(request, std::max(request.tokens, 1));
  return graph->group->rank().Use([&](RankTurn& turn) {
    return turn.Record(request.stream, step, runner_->PartOf(request), graph->steps.get());
  });
}

absl::Status CollectiveRunner::Graphs::BeginLaunch(Id id, void* stream) {
  SY_ASSIGN_OR_RETURN(Graph * graph, Find(id));
  for (const auto& [other, of] : graphs_) {
    if (of.slot.has_value()) return OutOfOrder("a launch has not been ended; end it first");
  }
  if (graph->steps->count() == 0) return OutOfOrder("no step has been added to the graph");
  SY_RETURN_IF_ERROR(CheckLaunch(*graph));
  SY_ASSIGN_OR_RETURN(const std::uint32_t index, runner_->FreeSlot());
  SourceRank& rank = graph->group->rank();
  const LoggedStep wanted{.group = rank.group(),
                          .layer = LoggedStep::kLaunch,
                          .cover = static_cast<std::int32_t>(graph->steps->count()),
                          .epoch = graph->epoch.value & LoggedStep::kEpochMask};
  Slot& slot = runner_->slots_[index];
  SY_RETURN_IF_ERROR(rank.Use([&](RankTurn& turn) {
    if (slot.event_of != graph->of) {
      slot.event = turn.stream().MakeEvent();
      slot.event_of = graph->of;
    }
    // Whoever is waited for may be the caller of this.
    return turn.BeginLaunch(graph->steps, wanted, stream, TimePoint::min());
  }));
  graph->was_launched = true;
  graph->slot = index;
  slot.group = graph->group;
  slot.places = graph->places;
  slot.epoch = graph->epoch;
  slot.copied = false;
  slot.rounds.Begin(0);
  slot.used = slot.begins = true;
  slot.trace.Leave();
  ++slot.generation;
  return absl::OkStatus();
}

absl::Status CollectiveRunner::Graphs::CheckLaunch(const Graph& graph) const {
  if (graph.group->state() != SourceGroup::State::kReady) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                     "the group of the graph has ended; record the graph again, on all ranks");
  }
  // Whether ids were right is known of so many steps only.
  std::uint64_t oldest = graph.group->rank().steps();
  for (const Slot& slot : runner_->slots_) {
    if (slot.used && slot.group == graph.group && !slot.rounds.numbers.empty()) {
      oldest = std::min(oldest, slot.rounds.numbers.front());
    }
  }
  if (graph.group->rank().steps() + graph.steps->count() - oldest <= kStepsMax) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
      absl::StrFormat("more than %d steps of launches are not taken; wait for one", kStepsMax));
}

absl::StatusOr<StepTicket> CollectiveRunner::Graphs::EndLaunch(Id id, void* stream) {
  SY_ASSIGN_OR_RETURN(Graph * graph, Find(id));
  if (!graph->slot.has_value()) return OutOfOrder("no launch of the graph has begun");
  const std::uint32_t index = *std::exchange(graph->slot, std::nullopt);
  Slot& slot = runner_->slots_[index];
  std::uint64_t first = 0;
  const absl::Status ended = graph->group->rank().Use([&](RankTurn& turn) {
    SY_ASSIGN_OR_RETURN(first, turn.EndLaunch(stream));
    return turn.stream().Record(slot.event.get());
  });
  slot.begins = false;
  if (!ended.ok()) {
    slot.used = false;
    slot.group = nullptr;
    return ended;
  }
  slot.rounds.numbers.resize(graph->steps->count());
  std::iota(slot.rounds.numbers.begin(), slot.rounds.numbers.end(), first);
  return StepTicket{.slot = index, .generation = slot.generation};
}

absl::StatusOr<StepGraphs::State> CollectiveRunner::Graphs::StateOf(Id id) {
  SY_ASSIGN_OR_RETURN(const Graph* graph, Find(id));
  if (graph->group->state() != SourceGroup::State::kReady) return State::kGone;
  const bool current = graph->group == runner_->current_ && graph->epoch == runner_->epoch();
  return current ? State::kCurrent : State::kOutOfDate;
}

absl::Status CollectiveRunner::Graphs::Close(Id id) {
  SY_ASSIGN_OR_RETURN(const Graph* graph, Find(id));
  if (graph->slot.has_value()) return OutOfOrder("the graph's last launch has not been ended");
  graphs_.erase(id);
  return absl::OkStatus();
}

StepGraphs* CollectiveRunner::graphs() {
  if (graphs_ == nullptr) graphs_ = std::make_unique<Graphs>(this);
  return graphs_.get();
}

}  // namespace switchyard
