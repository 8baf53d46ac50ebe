// The demands of a mode on the devices at the other end, and the decision within those limits.
//
// A limit is checked when a deployment is applied, so that no step meets it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "core/capability.h"
#include "core/dispatch_mode.h"
#include "core/moe_shape.h"
#include "core/resolve/decision_trace.h"
#include "core/resolve/dispatch_resolver.h"

namespace switchyard {

// Checks a mode against the device profiles of all `workers` (R45, R62): top-k, M and E % R in
// low_latency; only E % R in normal. Errors: those of CheckLimits.
absl::Status CheckModeLimits(DispatchMode mode, const MoeShape& shape,
                             std::int32_t max_tokens_per_step,
                             std::span<const CapabilitySet> workers);

// As TraceDispatch, but refuses a decision that exceeds the limits of `group`, all workers that
// would share the layer, as a plan would be refused. M is request.tokens; 0: not checked.
DecisionTrace TraceWithinLimits(const DispatchRequest& request,
                                std::span<const CapabilitySet> group);

}  // namespace switchyard
