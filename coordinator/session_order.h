// Checks what a source asks for against what serves, and fills in the defaults. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "core/capability.h"
#include "core/plan.h"
#include "core/session_messages.h"

namespace switchyard {

// Largest batch of one step in normal mode when the source does not say, and the most it may say.
inline constexpr std::int32_t kDefaultNormalTokens = 8192;
inline constexpr std::int32_t kMaxNormalTokens = 1 << 20;

// `deployment` is the one that the order names, `workers` the capabilities of the plan's workers.
// Errors: kNotFound (UNKNOWN_MODEL) for another model
// than the deployment's; kInvalidArgument (BAD_REQUEST) for a phase that it does not serve or a
// deadline that is negative or above a day, (TOO_MANY_TOKENS) for more than M or the limit of
// normal mode, (BAD_TOP_K, BAD_CONFIG) for a mode whose limits the plan's workers do not meet;
// kUnimplemented (UNSUPPORTED) for a kind of source that the plan has no configs for.
absl::StatusOr<OpenSessionRequest> CompleteOrder(const OpenSessionRequest& order,
                                                 const DeploymentRecord& deployment,
                                                 const Plan& plan,
                                                 std::span<const CapabilitySet> workers);

}  // namespace switchyard
