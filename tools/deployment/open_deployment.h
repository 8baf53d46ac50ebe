// From a program's options to a deployment's MoE layers: a running deployment, or one of our own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "tools/deployment/moe_provider.h"

namespace switchyard::qwen3_moe {

// `model_dir` is what workers of our own load. With `options.target` its coordinator (or, for
// transport "gateway", the worker there) is asked. SIGINT and SIGTERM end a deployment of our own
// and then this process, with nothing left behind. One of our own is planned in the mode and the
// wire dtype that are asked for; auto is what phases are planned in by default. Errors:
// kInvalidArgument (BAD_REQUEST) for options that exclude each other; kUnimplemented (UNSUPPORTED)
// for magnitudes over a gateway; kUnavailable (NOT_READY) with the rule that refuses the dtype, at
// once over loopback; those of LocalDeployment::Start and OpenDeploymentMoe.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeployment(const std::string& model_dir,
                                                            const MoeOptions& options);

}  // namespace switchyard::qwen3_moe
