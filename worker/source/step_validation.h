// Refuses a step that cannot be served, before anything of it is planned or sent.
#pragma once

#include "absl/status/status.h"

#include "core/session_messages.h"
#include "worker/device/device_backend.h"
#include "worker/source/p2p/bound_plan.h"
#include "worker/source/p2p/step.h"

namespace switchyard {

// `layer` is nullptr when the plan has no such layer. Errors: kNotFound (UNKNOWN_LAYER);
// kInvalidArgument: BAD_SHAPE (pointers, strides, alignment), BAD_TOP_K, TOO_MANY_TOKENS
// (low_latency beyond max_tokens_per_step), NAN_INPUT (strict session; names the row).
absl::Status ValidateStep(const StepRequest& request, const BoundPlan& binding,
                          const BoundLayer* layer, const OpenSessionRequest& order,
                          const RowOps& ops);

}  // namespace switchyard
