// Checks that the largest weight that a projection's scales allow is finite.
//
// Each scale may be finite and the weights still not: an FP32 scale of 1e38 times FP8's 448, a
// global scale so small that dividing by it overflows, two scales of a group whose product leaves
// FP16 (ModelSlim's W4A8 computes it there). Kernels would return infinities without an error.
// Pure; thread-safe. Cost: one pass over the scales, no allocation without a fault.
#pragma once

#include <optional>

#include "model/quant/layout/tensor_values.h"

namespace switchyard {

struct ScaleFault {
  TensorRole role = TensorRole::kScale;  // of the faulty tensor
  ValueFault value;
};

// `projection` has no ValueFault. The check assumes the largest code, whichever codes the weights
// use: a scale that is refused is some 30 powers of ten above those of trained models.
std::optional<ScaleFault> FindScaleFault(const RawProjection& projection);

}  // namespace switchyard
