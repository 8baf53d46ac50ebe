// Random tensors for tests: normally distributed (never zeros), the same for the same seed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "core/format/bf16.h"
#include "core/moe_shape.h"
#include "core/rng.h"
#include "worker/device/device_backend.h"

namespace switchyard::testing {

// Mean 0, variance 1 (Box-Muller).
inline double NextGaussian(Rng& rng) {
  const double u = 1.0 - rng.Uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * rng.Uniform());
}

inline std::vector<float> GaussianFloats(std::size_t count, double deviation, Rng& rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(deviation * NextGaussian(rng));
  return values;
}

inline std::vector<Bf16> GaussianBf16(std::size_t count, double deviation, Rng& rng) {
  std::vector<Bf16> values(count);
  for (Bf16& value : values) {
    value = FloatToBf16(static_cast<float>(deviation * NextGaussian(rng)));
  }
  return values;
}

// One expert's weights, scaled so that x of variance 1 gives gate, up and y of about variance 1.
struct RandomExpert {
  RandomExpert(const MoeShape& shape, std::uint64_t seed) {
    SeededRng rng(seed);
    const auto hidden = static_cast<std::size_t>(shape.hidden);
    const auto intermediate = static_cast<std::size_t>(shape.intermediate);
    const double in_deviation = 1.0 / std::sqrt(static_cast<double>(hidden));
    const double out_deviation = 2.0 / std::sqrt(static_cast<double>(intermediate));
    gate = GaussianBf16(hidden * intermediate, in_deviation, rng);
    up = GaussianBf16(hidden * intermediate, in_deviation, rng);
    down = GaussianBf16(hidden * intermediate, out_deviation, rng);
  }
  [[nodiscard]] ExpertWeightsView view() const { return {.gate = gate, .up = up, .down = down}; }

  std::vector<Bf16> gate;
  std::vector<Bf16> up;
  std::vector<Bf16> down;
};

}  // namespace switchyard::testing
