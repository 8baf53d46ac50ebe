// Root-mean-square normalization as in Qwen3: FP32, the weight times the normalized row.
#pragma once

#include <cstddef>
#include <span>

namespace switchyard::qwen3_moe {

// For each row of `rows` (dense, weight.size() wide): row * weight / sqrt(mean(row^2) + epsilon).
// `out` may be `rows`. Each row of the result only depends on its own input row. Thread-safe.
void RmsNorm(std::span<const float> rows, std::span<const float> weight, float epsilon, float* out);

}  // namespace switchyard::qwen3_moe
