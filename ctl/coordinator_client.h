// A client of the coordinator's calls for operators.
//
// Errors are the coordinator's own, with code, reason and ids; kUnavailable (COORDINATOR_LOST) if
// it cannot be reached or does not answer in time. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "services/security/transport_security.h"
#include "switchyard/v1/coordinator.grpc.pb.h"

namespace switchyard::ctl {

class CoordinatorClient {
 public:
  // Connects on the first call. `timeout` applies to each call.
  // `security`: null for plain connections; else workers are asked over it, too.
  CoordinatorClient(std::string target, Duration timeout,
                    std::shared_ptr<const TransportSecurity> security = nullptr);

  // For error texts and 'syctl version'.
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] const std::shared_ptr<const TransportSecurity>& security() const {
    return security_;
  }

  // The arguments are those of the request messages in coordinator.proto. Each function makes one
  // blocking call.
  absl::StatusOr<v1::ApplyDeploymentResponse> Apply(const v1::DeploymentSpec& spec, bool dry_run,
                                                    bool hash_weights = false);
  absl::StatusOr<v1::RollbackDeploymentResponse> Rollback(const std::string& name,
                                                          std::uint64_t to_revision);
  absl::StatusOr<v1::ListRevisionsResponse> Revisions(const std::string& deployment);
  absl::StatusOr<v1::DeleteDeploymentResponse> Delete(const std::string& name, bool now);
  absl::StatusOr<v1::CordonWorkerResponse> Cordon(const std::string& worker);
  absl::StatusOr<v1::DrainWorkerResponse> Drain(const std::string& worker, bool force);
  absl::StatusOr<v1::UncordonWorkerResponse> Uncordon(const std::string& worker);
  absl::StatusOr<v1::GetDeploymentResponse> Deployment(const std::string& name);
  absl::StatusOr<v1::ListDeploymentsResponse> Deployments();
  absl::StatusOr<v1::ListModelsResponse> Models();
  absl::StatusOr<v1::ListWorkersResponse> Workers();
  absl::StatusOr<v1::ListEventsResponse> Events(std::uint64_t after);
  absl::StatusOr<v1::ListSessionsResponse> Sessions();
  absl::StatusOr<v1::GetPlanResponse> Plan(const std::string& deployment);
  absl::StatusOr<v1::ExplainLayerResponse> Explain(const v1::ExplainLayerRequest& request);
  absl::StatusOr<v1::GetMetricsResponse> Metrics();
  absl::StatusOr<v1::GetVersionResponse> Version();

 private:
  // Makes one call with the timeout and converts its error.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::CoordinatorService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*),
                                const Request& request);

  const std::string target_;
  const Duration timeout_;
  const std::shared_ptr<const TransportSecurity> security_;
  const std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

}  // namespace switchyard::ctl
