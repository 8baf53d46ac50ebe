// A CoordinatorService over real gRPC that answers what the test says.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "tests/ctl/messages.h"

namespace switchyard::testing {

class ScriptedCoordinator final : public v1::CoordinatorService::Service {
 public:
  ScriptedCoordinator() {
    *deployments.add_deployments() = DeploymentMessage();
    revisions = RevisionsMessage();
    *models.add_models() = ModelMessage();
    *workers.add_workers() = WorkerMessage("w0");
    *workers.add_workers() = WorkerMessage("w1");
    auto started = GrpcServer::Start({}, {this});
    if (started.ok()) server_ = *std::move(started);
  }
  [[nodiscard]] std::string endpoint() const { return server_ ? server_->endpoint() : ""; }
  std::vector<v1::ApplyDeploymentRequest> applied() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return applied_;
  }
  std::vector<v1::DeleteDeploymentRequest> asked() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_;
  }
  std::vector<v1::RollbackDeploymentRequest> rollbacks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return rollbacks_;
  }
  // "drain w0"
  std::vector<std::string> duties() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return duties_;
  }
  std::vector<v1::ExplainLayerRequest> explained() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return explained_;
  }

  // Set before the first call.
  v1::ListDeploymentsResponse deployments;
  v1::ListModelsResponse models;
  v1::ListWorkersResponse workers;
  v1::ListRevisionsResponse revisions;  // of deployment local
  v1::ListEventsResponse events;
  v1::ListSessionsResponse sessions;
  v1::GetMetricsResponse metrics;
  v1::GetPlanResponse plan = PlanMessage();
  absl::Status plan_error;
  std::string refuse_apply_of;     // a deployment's name
  absl::Status problem;            // of what is applied, or would be
  std::string warning;             // about what is applied, or would be
  std::vector<std::string> trail;  // of the first config of a dry run, in place of its own
  bool explain_without_plan = false;
  // Called before each answer about a deployment or the workers, and may change what is said.
  std::function<void()> on_get;

  grpc::Status ApplyDeployment(grpc::ServerContext* /*context*/,
                               const v1::ApplyDeploymentRequest* request,
                               v1::ApplyDeploymentResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    applied_.push_back(*request);
    if (request->deployment().name() == refuse_apply_of) {
      return StatusToGrpc(MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                                    "checkpoint is missing", {{"field", "checkpoint"}}));
    }
    v1::Deployment& deployment = *response->mutable_deployment();
    *deployment.mutable_spec() = request->deployment();
    deployment.set_state(v1::DEPLOYMENT_STATE_PENDING);
    deployment.set_activity("waiting for workers");
    if (!problem.ok()) *deployment.mutable_problem() = StatusToProto(problem);
    if (!warning.empty()) {
      v1::DispatchWarning& item = *response->add_warnings();
      item.set_id("fp8_to_int8");
      item.set_text(warning);
    }
    if (!request->validate_only()) return grpc::Status::OK;
    deployment.set_activity("checked; a plan with 2 workers is possible");
    deployment.add_left_out("w9: no memory");
    if (problem.ok()) *response->mutable_configs() = PlanMessage().plan().configs();
    if (!trail.empty()) {
      response->mutable_configs(0)->mutable_trail()->Assign(trail.begin(), trail.end());
    }
    if (!problem.ok()) deployment.set_activity("checked; the available workers are not sufficient");
    return grpc::Status::OK;
  }
  grpc::Status DeleteDeployment(grpc::ServerContext* /*context*/,
                                const v1::DeleteDeploymentRequest* request,
                                v1::DeleteDeploymentResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked_.push_back(*request);
    for (const v1::Deployment& deployment : deployments.deployments()) {
      if (deployment.spec().name() != request->name()) continue;
      *response->mutable_deployment() = deployment;
      return grpc::Status::OK;
    }
    return StatusToGrpc(
        MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such deployment"));
  }
  grpc::Status RollbackDeployment(grpc::ServerContext* /*context*/,
                                  const v1::RollbackDeploymentRequest* request,
                                  v1::RollbackDeploymentResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    rollbacks_.push_back(*request);
    v1::Deployment& deployment = *response->mutable_deployment();
    deployment = deployments.deployments(0);
    if (request->to_revision() == deployment.revision()) return grpc::Status::OK;
    deployment.set_revision(deployment.revision() + 1);
    if (!problem.ok()) *deployment.mutable_problem() = StatusToProto(problem);
    return grpc::Status::OK;
  }
  grpc::Status ListRevisions(grpc::ServerContext* /*context*/,
                             const v1::ListRevisionsRequest* request,
                             v1::ListRevisionsResponse* response) override {
    *response = revisions;
    if (request->deployment().empty() || request->deployment() == "local") return grpc::Status::OK;
    return StatusToGrpc(MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                                  "no deployment " + request->deployment()));
  }
  grpc::Status CordonWorker(grpc::ServerContext* /*context*/,
                            const v1::CordonWorkerRequest* request,
                            v1::CordonWorkerResponse* /*response*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    duties_.push_back("cordon " + request->id());
    return grpc::Status::OK;
  }
  grpc::Status DrainWorker(grpc::ServerContext* /*context*/, const v1::DrainWorkerRequest* request,
                           v1::DrainWorkerResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    duties_.push_back((request->force() ? "force drain " : "drain ") + request->id());
    response->add_warnings("deployment local: 1 workers are left");
    return grpc::Status::OK;
  }
  grpc::Status UncordonWorker(grpc::ServerContext* /*context*/,
                              const v1::UncordonWorkerRequest* request,
                              v1::UncordonWorkerResponse* /*response*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    duties_.push_back("uncordon " + request->id());
    return grpc::Status::OK;
  }
  grpc::Status GetDeployment(grpc::ServerContext* /*context*/,
                             const v1::GetDeploymentRequest* request,
                             v1::GetDeploymentResponse* response) override {
    if (on_get) on_get();
    for (const v1::Deployment& deployment : deployments.deployments()) {
      if (deployment.spec().name() != request->name()) continue;
      *response->mutable_deployment() = deployment;
      return grpc::Status::OK;
    }
    return StatusToGrpc(MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                                  "no deployment " + request->name() + ": there is local",
                                  {{"deployment", request->name()}}));
  }
  grpc::Status ListDeployments(grpc::ServerContext* /*context*/,
                               const v1::ListDeploymentsRequest* /*request*/,
                               v1::ListDeploymentsResponse* response) override {
    *response = deployments;
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext* /*context*/,
                          const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    *response = models;
    return grpc::Status::OK;
  }
  grpc::Status ListWorkers(grpc::ServerContext* /*context*/,
                           const v1::ListWorkersRequest* /*request*/,
                           v1::ListWorkersResponse* response) override {
    if (on_get) on_get();
    *response = workers;
    return grpc::Status::OK;
  }
  grpc::Status ListEvents(grpc::ServerContext* /*context*/, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override {
    if (on_get) on_get();
    for (const v1::Event& event : events.events()) {
      if (event.number() > request->after()) *response->add_events() = event;
      response->set_last(event.number());
    }
    return grpc::Status::OK;
  }
  grpc::Status GetMetrics(grpc::ServerContext* /*context*/,
                          const v1::GetMetricsRequest* /*request*/,
                          v1::GetMetricsResponse* response) override {
    *response = metrics;
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext* /*context*/,
                            const v1::ListSessionsRequest* /*request*/,
                            v1::ListSessionsResponse* response) override {
    *response = sessions;
    return grpc::Status::OK;
  }
  grpc::Status GetPlan(grpc::ServerContext* /*context*/, const v1::GetPlanRequest* /*request*/,
                       v1::GetPlanResponse* response) override {
    *response = plan;
    return StatusToGrpc(plan_error);
  }
  grpc::Status ExplainLayer(grpc::ServerContext* /*context*/,
                            const v1::ExplainLayerRequest* request,
                            v1::ExplainLayerResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    explained_.push_back(*request);
    if (explain_without_plan) {
      *response = RefusedLayerMessage();
      return grpc::Status::OK;
    }
    *response = LayerMessage(request->layer());
    if (request->edge().worker().empty() || request->edge().worker() == "cpu") {
      return grpc::Status::OK;
    }
    response->clear_configs();
    *response->add_hypothetical() = HypotheticalMessage(request->edge().worker());
    return grpc::Status::OK;
  }
  grpc::Status GetVersion(grpc::ServerContext* /*context*/,
                          const v1::GetVersionRequest* /*request*/,
                          v1::GetVersionResponse* response) override {
    response->set_version("9.8.7");
    response->set_frame_version(5);
    response->set_protocol_version(6);
    response->set_incarnation("abc");
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  std::vector<v1::ApplyDeploymentRequest> applied_;       // guarded by mutex_
  std::vector<v1::ExplainLayerRequest> explained_;        // guarded by mutex_
  std::vector<v1::DeleteDeploymentRequest> asked_;        // guarded by mutex_
  std::vector<std::string> duties_;                       // guarded by mutex_
  std::vector<v1::RollbackDeploymentRequest> rollbacks_;  // guarded by mutex_
  std::unique_ptr<GrpcServer> server_;                    // ends before what it serves
};

}  // namespace switchyard::testing
