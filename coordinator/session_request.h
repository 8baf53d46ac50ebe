// Checks a request for a session against the plan that serves, and fills in the defaults. The
// source gets the result back in its grant, so that it computes no default of its own. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "coordinator/spec/deployment_record.h"
#include "core/capability.h"
#include "core/plan.h"
#include "core/session_messages.h"

namespace switchyard {

// Largest batch of one step in normal mode: the default, and the most that a source may request.
// Normal mode splits a step into chunks, so that the bound refuses only mistakes.
inline constexpr std::int32_t kDefaultNormalTokens = 8192;
// A collective session has fewer: all its ranks hold memory for so many tokens of every source.
inline constexpr std::int32_t kDefaultGroupTokens = 2048;
inline constexpr std::int32_t kMaxNormalTokens = 1 << 20;
// Bounds GroupRequest::name.
inline constexpr std::size_t kGroupNameMax = 128;

// A request with every default filled in.
struct CompleteSession {
  // Its binding is not kAuto. Its group is empty unless it is collective, or was kAuto and named
  // one.
  OpenSessionRequest request;
  std::string reason;  // why it is that binding, for people
};

// `deployment` is the one that `request` names, `workers` are the capabilities of the plan's
// workers. `obstacle` is why the group cannot be as far as its other sources are concerned; empty:
// they can. With kAuto a group that cannot be is no error, and then sums come back as BF16; a place
// in it that is none is one.
// Errors: kNotFound (UNKNOWN_MODEL) for another model than the deployment's; kInvalidArgument
// (BAD_REQUEST) for a phase that it does not serve, a deadline that is negative or above a day, or
// no place in a group, (TOO_MANY_TOKENS) for more tokens than max_tokens_per_step or than normal
// mode takes, (BAD_TOP_K, BAD_CONFIG) for a mode whose limits the plan's workers do not meet;
// kUnimplemented (UNSUPPORTED) for a kind of source that the plan has no configs for; for binding
// collective those of ResolveCollective.
absl::StatusOr<CompleteSession> CompleteSessionRequest(const OpenSessionRequest& request,
                                                       const DeploymentRecord& deployment,
                                                       const Plan& plan,
                                                       std::span<const CapabilitySet> workers,
                                                       absl::string_view obstacle);

}  // namespace switchyard
