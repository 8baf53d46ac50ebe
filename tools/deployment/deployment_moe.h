// The MoE layers of a deployment: routed experts run on its workers, through the client alone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "client/client.h"
#include "core/resolve/mode_resolver.h"
#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

struct DeploymentMoeOptions {
  std::string deployment;          // its name; empty: the only one
  std::optional<ModeChoice> mode;  // unset: the plan's for prefill and for decode
  // How rows must travel for the check to pass: "mapped", "messages", "grpc", "inproc".
  std::string expected_path;
  bool record_amax = false;  // workers note the largest magnitudes of each expert
  Duration ready_timeout = std::chrono::seconds(60);
  std::string description;  // one line for people
  // The deployment itself, when it is this process's own: outlives the client.
  std::shared_ptr<void> keep_alive;
};

// Opens a session of prefill and one of decode; waits at most ready_timeout for the deployment's
// first epoch. Errors: those of StepSessions::Open.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeploymentMoe(std::unique_ptr<Client> client,
                                                               const DeploymentMoeOptions& options);

}  // namespace switchyard::qwen3_moe
