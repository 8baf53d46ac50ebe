// Refusals of weights that no kernel can use, in words for an operator.
//
// A checkpoint is checked once, when it is packed, so that a bad scale is an error of the
// deployment and not a NaN in somebody's answer.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/moe_shape.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// kInvalidArgument (BAD_SHAPE) with the sizes of `shape`.
absl::Status BadShape(const MoeShape& shape, absl::string_view what);

// Errors: those of DeviceBackend::Pack about the views. `shape` has sizes above zero.
absl::Status CheckWeights(const MoeShape& shape, const ExpertWeightsView& weights);

}  // namespace switchyard
