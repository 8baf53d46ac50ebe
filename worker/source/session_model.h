// A session is pinned to the model with which it was opened: no step gets another model's answer.
#pragma once

#include "absl/status/status.h"

#include "core/plan.h"

namespace switchyard {

// Whether `now` serves the weights and the shape of `opened`. Errors: kFailedPrecondition
// (MODEL_CHANGED) naming both.
absl::Status CheckSameModel(const Plan& opened, const Plan& now);

}  // namespace switchyard
