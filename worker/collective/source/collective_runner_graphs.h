// The graphs of a CollectiveRunner, part of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "worker/collective/source/collective_runner.h"
#include "worker/source/step_graphs.h"

namespace switchyard {

class CollectiveRunner::Graphs final : public StepGraphs {
 public:
  explicit Graphs(CollectiveRunner* runner) : runner_(runner) {}

  absl::StatusOr<Id> Open(TimePoint now) override;
  absl::Status Add(Id graph, const StepRequest& request) override;
  absl::Status BeginLaunch(Id graph, void* stream) override;
  absl::StatusOr<StepTicket> EndLaunch(Id graph, void* stream) override;
  absl::StatusOr<State> StateOf(Id graph) override;
  absl::Status Close(Id graph) override;

  // Whether a graph is open that the group makes, on that plan.
  [[nodiscard]] bool Has(const SourceGroup* group) const;
  [[nodiscard]] bool Has(const SourceGroup* group, Epoch epoch) const;

 private:
  struct Graph {
    std::shared_ptr<SourceGroup> group;  // lives as long as the graph
    std::uint64_t of = 0;                // as Slot::event_of
    Epoch epoch;
    std::shared_ptr<const StepPlaces> places;
    std::shared_ptr<RecordedSteps> steps;
    bool was_launched = false;
    std::optional<std::uint32_t> slot = std::nullopt;  // of a launch that has not been ended
  };
  absl::StatusOr<Graph*> Find(Id id);
  [[nodiscard]] absl::Status CheckLaunch(const Graph& graph) const;
  [[nodiscard]] absl::Status CheckStep(const Graph& graph, const StepRequest& request) const;

  CollectiveRunner* const runner_;
  std::map<Id, Graph> graphs_;
  Id last_ = 0;
};

}  // namespace switchyard
