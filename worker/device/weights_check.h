// What makes the weights of an expert unusable, in words for an operator.
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
