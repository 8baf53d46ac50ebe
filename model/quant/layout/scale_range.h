// Whether the largest weight that a projection's scales allow is a number.
//
// Each scale may be finite and the weights still not: an FP32 scale of 1e38 times FP8's 448, a
// global scale so small that dividing by it overflows, two scales of a group whose product leaves
// FP16 (ModelSlim's W4A8 stores it so). Kernels would answer infinities without a word.
// Pure; thread-safe. Cost: one pass over the scales, no allocation without a fault.
#pragma once

#include <optional>

#include "model/quant/layout/tensor_values.h"

namespace switchyard {

struct ScaleFault {
  TensorRole role = TensorRole::kScale;  // of the tensor that the fault is in
  ValueFault value;
};

// Of a projection whose tensors have no ValueFault. Codes are taken at their largest, whichever the
// weights use: a scale that is refused is some 30 powers of ten above any of a trained model.
std::optional<ScaleFault> FindScaleFault(const RawProjection& projection);

}  // namespace switchyard
