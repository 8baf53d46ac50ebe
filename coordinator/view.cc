#include "coordinator/view.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace switchyard {

DeploymentView ViewOf(const DeploymentRecord& record, std::shared_ptr<const PlanUpdate> serving,
                      bool holds, const std::string& served_checkpoint) {
  DeploymentView view;
  view.spec = record.spec;
  view.revision = record.revision;
  view.shape = record.facts.shape;
  view.layers = record.facts.layers;
  view.storage = record.facts.storage;
  view.manifest = record.facts.manifest.Hash();
  view.serving = std::move(serving);
  if (view.serving == nullptr) return view;
  view.state = holds ? DeploymentState::kServing : DeploymentState::kUnavailable;
  const Plan& plan = view.serving->plan;
  const bool same = plan.manifest == view.manifest;
  view.served = ServedModel{.name = plan.model,
                            .checkpoint = same ? record.spec.checkpoint : served_checkpoint,
                            .shape = plan.shape,
                            .layers = {},
                            .manifest = plan.manifest};
  for (const LayerPlacement& layer : plan.layers) view.served->layers.push_back(layer.layer);
  return view;
}

RevisionState StateOf(const Revision& revision, const DeploymentView& deployment) {
  if (revision.number == deployment.served_revision) return RevisionState::kServing;
  if (!RefusalOf(revision, deployment).empty()) return RevisionState::kRefused;
  if (revision.number == deployment.revision) return RevisionState::kPending;
  return revision.served.value != 0 ? RevisionState::kFormer : RevisionState::kUnused;
}

std::string RefusalOf(const Revision& revision, const DeploymentView& deployment) {
  // Only of the newest is it known what the workers that there are make of it.
  const bool now = deployment.refused && revision.number == deployment.revision;
  return now ? std::string(deployment.problem.message()) : revision.refusal;
}

std::string ComingText(const DeploymentView& view) {
  if (!view.served) return "";
  if (view.served->name != view.spec.model) {
    return absl::StrCat("model ", view.spec.model, " is coming: ");
  }
  // A name may stand for other weights than before.
  if (view.served->manifest == view.manifest) return "";
  return absl::StrCat("checkpoint ", view.spec.checkpoint, " is coming: ");
}

}  // namespace switchyard
