// Root-mean-square normalisation, as Qwen3 uses it: FP32, weight times the normalised row.
#pragma once

#include <cstddef>
#include <span>

namespace switchyard::qwen3_moe {

// For each row of `rows` (dense, weight.size() wide): row * weight / sqrt(mean(row^2) + epsilon).
// `out` may be `rows`. Each row depends on itself alone. Thread-safe.
void RmsNorm(std::span<const float> rows, std::span<const float> weight, float epsilon, float* out);

}  // namespace switchyard::qwen3_moe
