// Refuses a step that cannot be served, before anything of it is planned or sent. Every runner uses
// it, so that a caller gets the same answers over every binding.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/moe_shape.h"
#include "core/plan.h"
#include "core/session_messages.h"
#include "worker/source/step_request.h"

namespace switchyard {

// The limits of a session and its plan for a step on one layer.
struct StepLimits {
  MoeShape shape;
  OutputDtype y_dtype = OutputDtype::kF32;
  bool strict = false;          // a NaN in x, or in a weight that counts, is refused
  std::int32_t max_tokens = 0;  // 0: no bound
  Duration step_deadline{};     // of a request that names none
  // The request's memory is the host's. False: it is a device's, and nothing of it is read.
  bool host_memory = true;
  bool y_on_stream = false;  // a stream of others can go on behind the step
  // The runner also takes x and y in memory of the device of the session's tensors
  // (StepRequest::on_device), which is faster for steps of at least so many tokens. 0: it does not.
  std::int32_t device_tokens_min = 0;
};

// The bound on tokens of `request`'s session for a layer that travels in `mode`, of which the plan
// takes `plan_max` (0: no bound). Only low_latency has one: normal cuts a batch into chunks.
std::int32_t MaxTokens(DispatchMode mode, std::int32_t plan_max, const OpenSessionRequest& request);

// Reads x, ids and weights when the limits are strict, and asks the system whether the host can
// read the addresses that should be the host's, in about a microsecond. Errors, kInvalidArgument:
// BAD_SHAPE (pointers, strides, alignment), BAD_TOP_K, TOO_MANY_TOKENS, NAN_INPUT (names the row),
// BAD_REQUEST (memory that the host cannot read, such as a GPU's; a stream with memory of the
// host).
absl::Status ValidateStep(const StepRequest& request, const StepLimits& limits);

// kNotFound (UNKNOWN_LAYER): `plan` has no such layer.
absl::Status UnknownLayer(const Plan& plan, LayerId layer);

}  // namespace switchyard
