#include "examples/qwen3_moe/rms_norm.h"

#include <cmath>

namespace switchyard::qwen3_moe {

void RmsNorm(std::span<const float> rows, std::span<const float> weight, float epsilon,
             float* out) {
  const std::size_t width = weight.size();
  for (std::size_t start = 0; start < rows.size(); start += width) {
    // In double, so that the result does not depend on the order of the sum.
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) {
      squares += static_cast<double>(rows[start + i]) * static_cast<double>(rows[start + i]);
    }
    const auto mean = static_cast<float>(squares / static_cast<double>(width));
    const float scale = 1.0F / std::sqrt(mean + epsilon);
    for (std::size_t i = 0; i < width; ++i) out[start + i] = weight[i] * (rows[start + i] * scale);
  }
}

}  // namespace switchyard::qwen3_moe
