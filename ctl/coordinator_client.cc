#include "ctl/coordinator_client.h"

#include <utility>

#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/peer_error.h"

namespace switchyard::ctl {

using Stub = v1::CoordinatorService::Stub;

CoordinatorClient::CoordinatorClient(std::string target, Duration timeout,
                                     std::shared_ptr<const TransportSecurity> security)
    : target_(std::move(target)),
      timeout_(timeout),
      security_(std::move(security)),
      stub_(v1::CoordinatorService::NewStub(MakeGrpcChannel(target_, kControlMessageBytesMax, {},
                                                            {security_, Role::kCoordinator}))) {}

template <typename Request, typename Response>
absl::StatusOr<Response> CoordinatorClient::Call(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                              const Request&,
                                                                              Response*),
                                                 const Request& request) {
  // A new context for each call, because gRPC does not allow reusing one.
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout_));
  Response response;
  const absl::Status status =
      AsPeerError(StatusFromGrpc((*stub_.*method)(&context, request, &response)),
                  {"coordinator", target_, Reason::kCoordinatorLost});
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ApplyDeploymentResponse> CoordinatorClient::Apply(const v1::DeploymentSpec& spec,
                                                                     bool dry_run,
                                                                     bool hash_weights) {
  v1::ApplyDeploymentRequest request;
  *request.mutable_deployment() = spec;
  request.set_validate_only(dry_run);
  request.set_hash_weights(hash_weights);
  return Call(&Stub::ApplyDeployment, request);
}

absl::StatusOr<v1::RollbackDeploymentResponse> CoordinatorClient::Rollback(
    const std::string& name, std::uint64_t to_revision) {
  v1::RollbackDeploymentRequest request;
  request.set_name(name);
  request.set_to_revision(to_revision);
  return Call(&Stub::RollbackDeployment, request);
}

absl::StatusOr<v1::ListRevisionsResponse> CoordinatorClient::Revisions(
    const std::string& deployment) {
  v1::ListRevisionsRequest request;
  request.set_deployment(deployment);
  return Call(&Stub::ListRevisions, request);
}

absl::StatusOr<v1::DeleteDeploymentResponse> CoordinatorClient::Delete(const std::string& name,
                                                                       bool now) {
  v1::DeleteDeploymentRequest request;
  request.set_name(name);
  request.set_now(now);
  return Call(&Stub::DeleteDeployment, request);
}

absl::StatusOr<v1::CordonWorkerResponse> CoordinatorClient::Cordon(const std::string& worker) {
  v1::CordonWorkerRequest request;
  request.set_id(worker);
  return Call(&Stub::CordonWorker, request);
}

absl::StatusOr<v1::DrainWorkerResponse> CoordinatorClient::Drain(const std::string& worker,
                                                                 bool force) {
  v1::DrainWorkerRequest request;
  request.set_id(worker);
  request.set_force(force);
  return Call(&Stub::DrainWorker, request);
}

absl::StatusOr<v1::UncordonWorkerResponse> CoordinatorClient::Uncordon(const std::string& worker) {
  v1::UncordonWorkerRequest request;
  request.set_id(worker);
  return Call(&Stub::UncordonWorker, request);
}

absl::StatusOr<v1::GetDeploymentResponse> CoordinatorClient::Deployment(const std::string& name) {
  v1::GetDeploymentRequest request;
  request.set_name(name);
  return Call(&Stub::GetDeployment, request);
}

absl::StatusOr<v1::ListDeploymentsResponse> CoordinatorClient::Deployments() {
  return Call(&Stub::ListDeployments, v1::ListDeploymentsRequest());
}

absl::StatusOr<v1::ListModelsResponse> CoordinatorClient::Models() {
  return Call(&Stub::ListModels, v1::ListModelsRequest());
}

absl::StatusOr<v1::ListWorkersResponse> CoordinatorClient::Workers() {
  return Call(&Stub::ListWorkers, v1::ListWorkersRequest());
}

absl::StatusOr<v1::ListEventsResponse> CoordinatorClient::Events(std::uint64_t after) {
  v1::ListEventsRequest request;
  request.set_after(after);
  return Call(&Stub::ListEvents, request);
}

absl::StatusOr<v1::ListSessionsResponse> CoordinatorClient::Sessions() {
  return Call(&Stub::ListSessions, v1::ListSessionsRequest());
}

absl::StatusOr<v1::GetPlanResponse> CoordinatorClient::Plan(const std::string& deployment) {
  v1::GetPlanRequest request;
  request.set_deployment(deployment);
  return Call(&Stub::GetPlan, request);
}

absl::StatusOr<v1::ExplainLayerResponse> CoordinatorClient::Explain(
    const v1::ExplainLayerRequest& request) {
  return Call(&Stub::ExplainLayer, request);
}

absl::StatusOr<v1::GetMetricsResponse> CoordinatorClient::Metrics() {
  return Call(&Stub::GetMetrics, v1::GetMetricsRequest());
}

absl::StatusOr<v1::GetVersionResponse> CoordinatorClient::Version() {
  return Call(&Stub::GetVersion, v1::GetVersionRequest());
}

}  // namespace switchyard::ctl
