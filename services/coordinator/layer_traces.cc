#include "services/coordinator/layer_traces.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "coordinator/config_planner.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/mode_limits.h"
#include "core/resolve/what_if.h"

namespace switchyard {
namespace {

using ByKind = std::map<DeviceKind, std::vector<CapabilitySet>>;

bool IsRelevant(const DeploymentView& deployment, const WorkerView& worker) {
  if (deployment.serving != nullptr) {
    return deployment.serving->plan.FindWorker(worker.id).has_value();
  }
  // Without a plan: the workers that the next one would be made from.
  return worker.state == WorkerState::kLive;
}

// Returns, for each kind, the workers that suit the model, since a plan leaves the others out.
// Where none suits, returns all of the kind: the trace then says what they lack.
ByKind WorkersOf(const CoordinatorView& view, const DeploymentView& deployment) {
  ModelFacts facts;
  facts.shape = deployment.shape;
  facts.layers = deployment.layers;
  facts.storage = deployment.storage;
  ByKind suited;
  ByKind all;
  for (const WorkerView& worker : view.workers) {
    if (!IsRelevant(deployment, worker)) continue;
    const CapabilitySet& can = worker.capabilities;
    all[can.device].push_back(can);
    if (CheckWorkerSuits(facts, can).ok()) suited[can.device].push_back(can);
  }
  suited.merge(all);  // Adds only kinds of which none suits.
  return suited;
}

}  // namespace

DeploymentView AsServed(const DeploymentView& deployment) {
  DeploymentView served = deployment;
  if (deployment.serving == nullptr || deployment.revisions == nullptr) return served;
  const auto revision =
      std::ranges::find(*deployment.revisions, deployment.served_revision, &Revision::number);
  if (revision == deployment.revisions->end()) return served;
  served.spec = revision->spec;
  served.shape = revision->facts->shape;
  served.layers = revision->facts->layers;
  served.storage = revision->facts->storage;
  return served;
}

absl::StatusOr<LayerStorage> StorageOfLayer(const DeploymentView& deployment, LayerId layer) {
  const auto at = std::lower_bound(deployment.layers.begin(), deployment.layers.end(), layer);
  if (at != deployment.layers.end() && *at == layer) {
    return deployment.storage.at(static_cast<std::size_t>(at - deployment.layers.begin()));
  }
  return MakeError(
      absl::StatusCode::kNotFound, Reason::kUnknownLayer,
      absl::StrCat("deployment ", deployment.spec.name, " as applied has no layer ", layer.value,
                   ", although the serving plan has; try again when the new plan serves"),
      {{"deployment", deployment.spec.name}, {"layer", absl::StrCat(layer.value)}});
}

absl::StatusOr<std::vector<DecisionTrace>> TracesOf(const CoordinatorView& view,
                                                    const DeploymentView& deployment, LayerId layer,
                                                    std::optional<Phase> phase) {
  SY_ASSIGN_OR_RETURN(const LayerStorage storage, StorageOfLayer(deployment, layer));
  const ByKind workers = WorkersOf(view, deployment);
  // Limits on a mode concern all workers of a step together, of whatever kind.
  std::vector<CapabilitySet> group;
  for (const auto& [kind, of_kind] : workers) {
    group.insert(group.end(), of_kind.begin(), of_kind.end());
  }
  std::vector<DecisionTrace> traces;
  for (const PhaseSpec& served : deployment.spec.phases) {
    if (phase && served.phase != *phase) continue;
    for (const DeviceKind source : PlannedSources()) {
      SY_ASSIGN_OR_RETURN(const auto profiles, ProfilesNamed(DeviceKindName(source)));
      for (const auto& [kind, of_kind] : workers) {
        if (!IsPlanned({source, kind})) continue;
        DispatchRequest request =
            RequestFor(deployment.spec, deployment.shape, layer, storage, served);
        request.source = FullCapabilities(*profiles.front());
        request.workers = of_kind;
        traces.push_back(TraceWithinLimits(request, group));
      }
    }
  }
  return traces;
}

}  // namespace switchyard
