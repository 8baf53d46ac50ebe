// Opens the MoE layers of a running deployment, or starts a deployment for them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// With `options.target`, connects to the coordinator there (for transport "gateway": to the
// worker). Otherwise starts a deployment whose workers load `model_dir`, planned in the mode and
// wire dtype of the options. SIGINT and SIGTERM end such a deployment and then this process,
// without leaving processes behind. Errors: kInvalidArgument (BAD_REQUEST) for options that exclude
// each other; kUnimplemented (UNSUPPORTED) for record_amax over a gateway; kUnavailable (NOT_READY)
// with the rule that refuses the dtype (immediately over loopback); those of LocalDeployment::Start
// and OpenDeploymentMoe.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeployment(const std::string& model_dir,
                                                            const MoeOptions& options);

}  // namespace switchyard::qwen3_moe
