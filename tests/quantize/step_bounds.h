// The largest allowed distance of a weight from its stored value, computed only from the weights,
// and weights that a layout stores exactly. Slow and obvious; nothing of quantize/ is used.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/check.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "core/rng.h"
#include "model/quant/layout/expected_tensors.h"
#include "model/quant/layout/quant_layout.h"

namespace switchyard::testing {

// The rectangle of weights that share a scale: rows x columns of it.
inline ProjectionSize UnitOf(const ProjectionQuant& quant, const ProjectionSize& size) {
  switch (quant.layout) {
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
      return {128, 128};
    case QuantLayout::kFp8Tensor:
      return size;
    default:
      return {1, quant.group_size == 0 ? size.columns : quant.group_size};
  }
}

struct Extent {
  double low = 0;
  double high = 0;
  [[nodiscard]] double amax() const { return std::max(high, -low); }
};

// The bound of one FP4 weight, in a group of largest magnitude `group` of a tensor of `tensor`.
inline double Nvfp4Bound(double weight, double group, double tensor) {
  const double scale = group / 6;
  // E4M3 scales: 3 bits of fraction, and steps of 2^-9 near zero.
  const double off = std::max(scale / 16, 0x1p-10 * tensor / 2688);
  if (weight <= 2 * (scale - off)) return 0.25 * (scale + off);
  if (weight <= 4 * (scale - off)) return 0.5 * (scale + off);
  return std::max(scale + off, 6 * off);
}

inline double BoundOf(const ProjectionQuant& quant, double weight, const Extent& unit,
                      double tensor) {
  const double int4 = std::max(unit.high / 7, -unit.low / 8);
  switch (quant.layout) {
    case QuantLayout::kBf16:
      return 0;
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
    case QuantLayout::kFp8Tensor:
    case QuantLayout::kFp8Channel: {
      const double scale = std::max(1e-4, unit.amax()) / 448 * (quant.power_of_two_scales ? 2 : 1);
      return std::max(weight / 16, scale * 0x1p-10);
    }
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return Nvfp4Bound(weight, unit.amax(), tensor);
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
      return unit.amax() / 127 / 2;
    case QuantLayout::kModelSlimW4A4:
      return int4 / 2;
    case QuantLayout::kW4Afp8:
    case QuantLayout::kPackQuantized:
      return int4 * (0.5 + 8 * 0x1p-8) + 8 * 0x1p-134;  // BF16 scales, in steps of 2^-133 near zero
    case QuantLayout::kModelSlimW4A8:
      if (quant.group_size == 0) return int4 / 2;
      return int4 * (0.5 + 8 * 0x1p-11) + 8 * 0x1p-25;  // FP16 products
    case QuantLayout::kAwq:
      return (unit.high - unit.low) / 15 * (0.5 + 15 * 0x1p-11) + 15 * 0x1p-25;
  }
  return 0;
}

// The bounds of all weights, row-major.
inline std::vector<double> AllBoundsOf(const ProjectionQuant& quant, const ProjectionSize& size,
                                       const std::vector<float>& weights) {
  const ProjectionSize unit = UnitOf(quant, size);
  const std::int64_t across = (size.columns + unit.columns - 1) / unit.columns;
  const auto index = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return static_cast<std::size_t>(at / size.columns / unit.rows * across +
                                    at % size.columns / unit.columns);
  };
  std::vector<Extent> extents(index(weights.size() - 1) + static_cast<std::size_t>(across) + 1);
  double tensor = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    extents[index(i)].low = std::min(extents[index(i)].low, weight);
    extents[index(i)].high = std::max(extents[index(i)].high, weight);
    tensor = std::max(tensor, std::abs(weight));
  }
  std::vector<double> bounds;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = std::abs(static_cast<double>(weights[i]));
    // A few FP32 roundings of the scale and the product, and FP32's own smallest steps.
    bounds.push_back(BoundOf(quant, weight, extents[index(i)], tensor) * (1 + 1e-5) +
                     weight * 1e-6 + 1e-42);
  }
  return bounds;
}

// A random code of the layout as a number, where the scale is 1. The first two of every 16 are the
// ends of the range, so that whatever shares a scale has them.
inline float RandomCode(const ProjectionQuant& quant, std::int64_t column, SeededRng& rng) {
  switch (quant.layout) {
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
    case QuantLayout::kFp8Tensor:
    case QuantLayout::kFp8Channel: {
      const auto code = static_cast<Fp8E4m3>(rng.Below(0x7f) | rng.Below(2) << 7U);
      return column % 16 == 0 ? 448.0F : E4m3ToFloat(code);
    }
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return column % 16 == 0 ? 6.0F : E2m1ToFloat(static_cast<Fp4E2m1>(rng.Below(16)));
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
      return column % 16 == 0 ? -127.0F : static_cast<float>(rng.Below(255)) - 127.0F;
    case QuantLayout::kW4Afp8:
    case QuantLayout::kModelSlimW4A8:
    case QuantLayout::kModelSlimW4A4:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kAwq:
      if (column % 16 == 0) return 7.0F;
      return column % 16 == 1 ? -8.0F : static_cast<float>(rng.Below(16)) - 8.0F;
    case QuantLayout::kBf16:
      break;
  }
  SY_UNREACHABLE("a layout without codes");
}

// BF16 weights that are codes times a power of two, for NVFP4 times E4M3 scales as well.
inline std::vector<float> RepresentableWeights(const ProjectionQuant& quant,
                                               const ProjectionSize& size, std::uint64_t seed) {
  SeededRng rng(seed);
  const bool nvfp4 =
      quant.layout == QuantLayout::kNvfp4ModelOpt || quant.layout == QuantLayout::kNvfp4Compressed;
  std::vector<float> weights;
  float scale = 1;
  for (std::int64_t n = 0; n < size.rows; ++n) {
    for (std::int64_t k = 0; k < size.columns; ++k) {
      // The first group has the largest scale, which the global one is made from.
      if (nvfp4 && k % 16 == 0) {
        scale = weights.empty() ? 448.0F
                                : E4m3ToFloat(static_cast<Fp8E4m3>(1 + rng.Below(kE4m3MaxCode)));
      }
      weights.push_back(RandomCode(quant, k, rng) * scale * 0x1p-9F);
    }
  }
  return weights;
}

}  // namespace switchyard::testing
