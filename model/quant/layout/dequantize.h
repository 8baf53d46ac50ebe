// The weights of one projection in FP32, for tools and tests that compare with kernels.
//
// Arithmetic: quant_layout.h. Pure; thread-safe. Cost: rows * columns times some 10 ns.
#pragma once

#include <vector>

#include "model/quant/layout/raw_projection.h"

namespace switchyard {

// Row-major [size.rows, size.columns].
std::vector<float> Dequantize(const RawProjection& projection);

}  // namespace switchyard
