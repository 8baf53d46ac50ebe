// From a program's options to a deployment's MoE layers: a running deployment, or one of our own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "examples/qwen3_moe/moe_provider.h"

namespace switchyard::qwen3_moe {

// `model_dir` is what workers of our own load. With `options.target` its coordinator (or, for
// transport "gateway", the worker there) is asked. SIGINT and SIGTERM end a deployment of our own
// and then this process, with nothing left behind. Errors: kInvalidArgument (BAD_REQUEST) for
// options that exclude each other; those of LocalDeployment::Start and OpenDeploymentMoe.
absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeployment(const std::string& model_dir,
                                                            const MoeOptions& options);

}  // namespace switchyard::qwen3_moe
