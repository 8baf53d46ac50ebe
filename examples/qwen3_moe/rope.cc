#include "examples/qwen3_moe/rope.h"

#include <cmath>

namespace switchyard::qwen3_moe {

Rope::Rope(std::size_t head_dim, double theta) {
  for (std::size_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_dim);
    inverse_frequencies_.push_back(static_cast<float>(1.0 / std::pow(theta, exponent)));
  }
}

void Rope::Turn(std::size_t position, std::span<float> heads) const {
  const std::size_t half = inverse_frequencies_.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inverse_frequencies_[i];
    // Sine and cosine are computed once for all heads of the token.
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    for (std::size_t head = 0; head < heads.size(); head += 2 * half) {
      const float first = heads[head + i];
      const float second = heads[head + half + i];
      heads[head + i] = first * cosine - second * sine;
      heads[head + half + i] = second * cosine + first * sine;
    }
  }
}

}  // namespace switchyard::qwen3_moe
