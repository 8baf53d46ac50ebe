// The MoE layers of a deployment. The routed experts run on its workers, and calls go only through
// the public client, so that a check covers what an engine would use.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "client/client.h"
#include "core/resolve/mode_resolver.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// Options of the provider for a deployment that already runs.
struct DeploymentMoeOptions {
  std::string deployment;          // its name; may be empty if there is only one
  std::string served_model;        // or its model's, which may have a deployment for each phase
  std::optional<ModeChoice> mode;  // unset: the plan's modes
  // The path that rows must take for the check to pass: "mapped", "messages", "grpc", "inproc".
  // Empty: any.
  std::string expected_path;
  bool in_lockstep = false;               // binding collective
  bool record_amax = false;               // workers record the largest magnitudes of each expert
  Duration retry_for = kRetryForDefault;  // as in MoeSession::Run
  // Long enough for loading the weights of a large model.
  Duration ready_timeout = std::chrono::seconds(60);
  std::string description;  // one line for people
  // Owner of a deployment that this process started. Destroyed after the client.
  std::shared_ptr<void> keep_alive;
};

// Opens a prefill session and a decode session. Waits up to ready_timeout for the deployment's
// first epoch. Errors: those of StepSessions::Open.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeploymentMoe(std::unique_ptr<Client> client,
                                                               const DeploymentMoeOptions& options);

}  // namespace switchyard::qwen3_moe
