#include "services/coordinator/admin_queries.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/convert/admin.h"
#include "services/convert/decoder.h"
#include "services/convert/history.h"
#include "services/convert/plan.h"
#include "services/convert/trace.h"
#include "services/coordinator/edge_query.h"
#include "services/coordinator/layer_traces.h"

namespace switchyard {
namespace {

std::string Names(const CoordinatorView& view) {
  if (view.deployments.empty()) return "none exists; apply one first";
  return absl::StrCat(
      "these exist: ",
      absl::StrJoin(view.deployments, ", ", [](std::string* out, const DeploymentView& item) {
        absl::StrAppend(out, item.spec.name);
      }));
}

absl::StatusOr<const DeploymentView*> Find(const CoordinatorView& view, const std::string& name) {
  // Most coordinators have one deployment; naming it would be a nuisance, also while the first
  // apply of another one reads its checkpoint.
  const auto exists = [](const DeploymentView& one) {
    return one.state != DeploymentState::kReading;
  };
  if (name.empty() && view.deployments.size() == 1) return &view.deployments.front();
  if (name.empty() &&
      std::count_if(view.deployments.begin(), view.deployments.end(), exists) == 1) {
    return &*std::find_if(view.deployments.begin(), view.deployments.end(), exists);
  }
  if (name.empty() && !view.deployments.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("name a deployment: ", Names(view)), {{"field", "deployment"}});
  }
  for (const DeploymentView& deployment : view.deployments) {
    if (deployment.spec.name == name) return &deployment;
  }
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                   name.empty() ? absl::StrCat("no deployment: ", Names(view))
                                : absl::StrCat("no deployment ", name, ": ", Names(view)),
                   {{"deployment", name}});
}

absl::Status NoPlanYet(const DeploymentView& deployment) {
  // Not retryable: no plan will come.
  if (deployment.state == DeploymentState::kRefused) return deployment.problem;
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrCat("deployment ", deployment.spec.name, " has no plan yet: ", deployment.activity),
      {{"deployment", deployment.spec.name}});
}

// For calls about the plan. "No plan yet" is retryable, unlike a name that does not exist.
absl::StatusOr<const DeploymentView*> FindServing(const CoordinatorView& view,
                                                  const std::string& name) {
  SY_ASSIGN_OR_RETURN(const DeploymentView* deployment, Find(view, name));
  if (deployment->serving == nullptr) return NoPlanYet(*deployment);
  return deployment;
}

absl::Status NoSuchLayer(const std::string& model, const std::vector<LayerId>& there,
                         LayerId layer) {
  const std::string layers = absl::StrJoin(
      there, ", ", [](std::string* out, LayerId id) { absl::StrAppend(out, id.value); });
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer,
                   absl::StrCat("layer ", layer.value, " of model ", model,
                                " is not an MoE layer; its MoE layers are: ", layers),
                   {{"layer", absl::StrCat(layer.value)}, {"model", model}});
}

// The layer, phase and edge that a request to ExplainLayer selects.
struct LayerQuestion {
  LayerId layer;
  std::optional<Phase> phase;
  std::optional<EdgeQuery> edge;

  [[nodiscard]] bool Is(Phase of, const Edge& at) const {
    return (!phase || of == *phase) && (!edge || edge->Is(at));
  }
};

absl::StatusOr<LayerQuestion> ParseQuestion(const v1::ExplainLayerRequest& request) {
  Decoder at("ExplainLayerRequest");
  LayerQuestion question;
  at.Int("layer", request.layer(), &question.layer.value);
  at.OptionalEnum<Phase>("phase", request.phase(), &question.phase);
  if (!at.ok()) return at.status();
  if (request.has_edge()) {
    SY_ASSIGN_OR_RETURN(question.edge, ParseEdgeQuery(request.edge()));
  }
  return question;
}

absl::Status AddPlan(const Plan& plan, const LayerQuestion& question,
                     v1::ExplainLayerResponse* out) {
  const LayerPlacement* placement = plan.FindLayer(question.layer);
  if (placement == nullptr) {
    std::vector<LayerId> there;
    for (const LayerPlacement& layer : plan.layers) there.push_back(layer.layer);
    return NoSuchLayer(plan.model, there, question.layer);
  }
  out->set_epoch(plan.epoch.value);
  for (const PlanWorker& worker : plan.workers) Encode(worker, out->add_workers());
  Encode(*placement, out->mutable_placement());
  for (const DispatchConfig& config : plan.configs) {
    if (config.layer == question.layer && question.Is(config.phase, config.edge)) {
      Encode(config, out->add_configs());
    }
  }
  return absl::OkStatus();
}

absl::Status AddTraces(const CoordinatorView& view, const DeploymentView& deployment,
                       const LayerQuestion& question, v1::ExplainLayerResponse* out) {
  // The serving plan may be of an older spec, with layers that the applied one lacks. Such a layer
  // has a place in the plan and no decision that could be made again.
  if (!std::binary_search(deployment.layers.begin(), deployment.layers.end(), question.layer)) {
    return deployment.serving != nullptr
               ? absl::OkStatus()
               : NoSuchLayer(deployment.spec.model, deployment.layers, question.layer);
  }
  SY_ASSIGN_OR_RETURN(const std::vector<DecisionTrace> traces,
                      TracesOf(view, deployment, question.layer, question.phase));
  for (const DecisionTrace& trace : traces) {
    // Decisions are made for all edges; the caller may want one.
    if (question.Is(trace.subject.phase, trace.subject.edge)) Encode(trace, out->add_traces());
  }
  return absl::OkStatus();
}

}  // namespace

v1::ApplyDeploymentResponse ApplyResponse(const DeploymentView& view) {
  v1::ApplyDeploymentResponse out;
  Encode(view, out.mutable_deployment());
  for (const Warning& warning : view.warnings) Encode(warning, out.add_warnings());
  if (view.proposed == nullptr) return out;
  for (const DispatchConfig& config : view.proposed->configs) Encode(config, out.add_configs());
  return out;
}

absl::StatusOr<v1::GetDeploymentResponse> GetDeployment(const CoordinatorView& view,
                                                        const v1::GetDeploymentRequest& request) {
  SY_ASSIGN_OR_RETURN(const DeploymentView* deployment, Find(view, request.name()));
  v1::GetDeploymentResponse out;
  Encode(*deployment, out.mutable_deployment());
  return out;
}

v1::ListDeploymentsResponse ListDeployments(const CoordinatorView& view) {
  v1::ListDeploymentsResponse out;
  for (const DeploymentView& deployment : view.deployments) {
    Encode(deployment, out.add_deployments());
  }
  return out;
}

absl::StatusOr<v1::ListRevisionsResponse> ListRevisions(const CoordinatorView& view,
                                                        const v1::ListRevisionsRequest& request) {
  SY_ASSIGN_OR_RETURN(const DeploymentView* found, Find(view, request.deployment()));
  v1::ListRevisionsResponse out;
  out.set_deployment(found->spec.name);
  if (found->revisions == nullptr) return out;
  for (const Revision& revision : *found->revisions) {
    Encode(revision, *found, out.add_revisions());
  }
  return out;
}

v1::ListModelsResponse ListModels(const CoordinatorView& view) {
  // Deployments whose model has the same name and manifest serve the same model.
  std::map<std::pair<std::string, Sha256Digest>, v1::Model> models;
  for (const DeploymentView& deployment : view.deployments) {
    if (deployment.state == DeploymentState::kReading) continue;
    // The one that serves; before the first epoch, the one that will.
    const ServedModel served =
        deployment.served.value_or(ServedModel{.name = deployment.spec.model,
                                               .checkpoint = deployment.spec.checkpoint,
                                               .shape = deployment.shape,
                                               .layers = deployment.layers,
                                               .manifest = deployment.manifest});
    v1::Model& model = models[{served.name, served.manifest}];
    if (model.name().empty()) Encode(served, &model);
    // Another deployment of the model may know where it is.
    if (model.checkpoint().empty()) model.set_checkpoint(served.checkpoint);
    model.add_deployments(deployment.spec.name);
  }
  v1::ListModelsResponse out;
  for (auto& [key, model] : models) *out.add_models() = std::move(model);
  return out;
}

v1::ListWorkersResponse ListWorkers(const CoordinatorView& view) {
  v1::ListWorkersResponse out;
  for (const WorkerView& worker : view.workers) Encode(worker, out.add_workers());
  return out;
}

v1::ListEventsResponse ListEvents(const std::vector<JournalEntry>& all,
                                  const v1::ListEventsRequest& request) {
  v1::ListEventsResponse out;
  for (const JournalEntry& entry : all) {
    out.set_last(entry.number);
    if (entry.number > request.after()) Encode(entry, out.add_events());
  }
  return out;
}

v1::ListSessionsResponse ListSessions(const std::vector<SessionView>& sessions) {
  v1::ListSessionsResponse out;
  for (const SessionView& session : sessions) Encode(session, out.add_sessions());
  return out;
}

absl::StatusOr<v1::GetPlanResponse> GetPlan(const CoordinatorView& view,
                                            const v1::GetPlanRequest& request) {
  SY_ASSIGN_OR_RETURN(const DeploymentView* found, FindServing(view, request.deployment()));
  v1::GetPlanResponse out;
  Encode(found->serving->plan, out.mutable_plan());
  EncodeDigest(found->serving->hash, out.mutable_plan_hash());
  return out;
}

absl::StatusOr<v1::ExplainLayerResponse> ExplainLayer(const CoordinatorView& view,
                                                      const v1::ExplainLayerRequest& request) {
  SY_ASSIGN_OR_RETURN(const DeploymentView* found, Find(view, request.deployment()));
  // Until its checkpoint is read, its layers are not known.
  if (found->state == DeploymentState::kReading) return NoPlanYet(*found);
  SY_ASSIGN_OR_RETURN(const LayerQuestion question, ParseQuestion(request));
  v1::ExplainLayerResponse out;
  out.set_activity(found->activity);
  if (found->serving != nullptr) {
    SY_RETURN_IF_ERROR(AddPlan(found->serving->plan, question, &out));
  }
  const DeploymentView served = AsServed(*found);
  SY_RETURN_IF_ERROR(AddTraces(view, served, question, &out));
  // Without an answer from a plan or from workers, what would be decided is the answer.
  const bool answered = found->serving != nullptr && !question.edge;
  if (answered || out.configs_size() > 0 || out.traces_size() > 0) return out;
  EdgeQuery edge;
  if (question.edge) {
    edge = *question.edge;
  } else {
    SY_ASSIGN_OR_RETURN(edge, EveryKind());
  }
  SY_ASSIGN_OR_RETURN(auto answers,
                      HypotheticalDispatches(served, question.layer, question.phase, edge));
  for (v1::HypotheticalDispatch& would : answers) *out.add_hypothetical() = std::move(would);
  return out;
}

}  // namespace switchyard
