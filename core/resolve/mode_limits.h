// What a mode asks of the devices at the other end, and the decision with those limits in it.
// Pure; thread-safe.
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

// What a mode asks of the device profiles of all `workers` (R45, R62): top-k, M and E % R in
// low_latency; E % R alone in normal. Errors: those of CheckLimits.
absl::Status CheckModeLimits(DispatchMode mode, const MoeShape& shape,
                             std::int32_t max_tokens_per_step,
                             std::span<const CapabilitySet> workers);

// As TraceDispatch; a decision that the limits of `group`, all workers that would share the layer,
// do not allow is refused by them as a plan would be. M is request.tokens; 0: not looked at.
DecisionTrace TraceWithinLimits(const DispatchRequest& request,
                                std::span<const CapabilitySet> group);

}  // namespace switchyard
