// What each activation format makes of a row of BF16 numbers, from the definition of its numbers: a
// list of all representable values and a search for the nearest one. Shares no code with the
// product but the reading and writing of BF16. Slow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "core/activation_format.h"
#include "core/format/bf16.h"

namespace switchyard::testing {

// Every finite magnitude of E4M3, ascending; index = code.
inline std::vector<double> E4m3Magnitudes() {
  std::vector<double> values;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code >> 3;
    const double fraction = (code & 7) / 8.0;
    values.push_back(exponent == 0 ? std::ldexp(fraction, -6)
                                   : std::ldexp(1.0 + fraction, exponent - 7));
  }
  return values;
}
inline std::vector<double> E2m1Magnitudes() { return {0, 0.5, 1, 1.5, 2, 3, 4, 6}; }
inline std::vector<double> Integers(int last) {
  std::vector<double> values;
  for (int i = 0; i <= last; ++i) values.push_back(i);
  return values;
}

// The nearest of `magnitudes` to |x|, the one with the even index of two; the sign of x.
inline double Nearest(const std::vector<double>& magnitudes, double x) {
  const double want = std::fabs(x);
  std::size_t best = 0;
  for (std::size_t i = 1; i < magnitudes.size(); ++i) {
    const double nearer = std::fabs(magnitudes[i] - want) - std::fabs(magnitudes[best] - want);
    if (nearer < 0 || (nearer == 0 && i % 2 == 0)) best = i;
  }
  return std::copysign(magnitudes[best], x);
}

inline double LargestOf(std::span<const double> row) {
  double largest = 0;
  for (const double x : row) largest = std::max(largest, std::fabs(x));
  return largest;
}

// A quantizer is its FP32 formula (worker/device/cpu/codec/codec_kernels.h,
// core/activation_format.h): BF16 values lie on ties between two codes often enough that the order
// of its operations shows. The search for the nearest value is exact.
struct GroupScale {
  float factor = 0;   // codes are near x * factor; or
  float divisor = 0;  // near x / divisor, where that is not 0
  float scale = 0;    // of codes
  float global = 1;   // a second divisor of NVFP4
};

inline void RoundGroup(const std::vector<double>& magnitudes, const GroupScale& by,
                       std::span<double> group) {
  for (double& x : group) {
    const auto value = static_cast<float>(x);  // it is a BF16 number
    const float scaled = by.divisor != 0 ? value / by.divisor : value * by.factor;
    const auto code = static_cast<float>(Nearest(magnitudes, static_cast<double>(scaled)));
    x = static_cast<double>(code * by.scale / by.global);
  }
}

inline GroupScale ScaleOf(const ActivationSpec& spec, float amax) {
  const float fp8_amax = std::max(1e-4F, amax);
  switch (spec.format) {
    case ActivationFormat::kBf16:
      break;
    case ActivationFormat::kFp8Group:
    case ActivationFormat::kFp8Row:
      return {.factor = 448.0F / fp8_amax, .scale = fp8_amax / 448.0F};
    case ActivationFormat::kFp8GroupPow2: {
      const float scale = std::exp2(std::ceil(std::log2(fp8_amax / 448.0F)));
      return {.factor = 1.0F / scale, .scale = scale};
    }
    case ActivationFormat::kFp8Static:
      return {.divisor = spec.scale, .scale = spec.scale};
    case ActivationFormat::kInt8Row:
      return {.divisor = amax / 127.0F, .scale = amax / 127.0F};
    case ActivationFormat::kInt4Row:
      return {.divisor = amax / 7.0F, .scale = amax / 7.0F};
    case ActivationFormat::kNvfp4: {
      const float wanted = spec.scale * amax / 6.0F;
      const auto scale = static_cast<float>(Nearest(E4m3Magnitudes(), static_cast<double>(wanted)));
      return {.factor = scale == 0 ? 0 : spec.scale / scale, .scale = scale, .global = spec.scale};
    }
  }
  return {};
}

inline std::vector<double> MagnitudesOf(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kInt8Row:
      return Integers(127);
    case ActivationFormat::kInt4Row:
      return Integers(7);
    case ActivationFormat::kNvfp4:
      return E2m1Magnitudes();
    default:
      return E4m3Magnitudes();
  }
}

// In place; each value is then rounded to BF16.
inline void ReferenceRound(const ActivationSpec& spec, std::span<double> row) {
  std::size_t group = row.size();
  if (spec.format == ActivationFormat::kFp8Group ||
      spec.format == ActivationFormat::kFp8GroupPow2) {
    group = 128;
  }
  if (spec.format == ActivationFormat::kNvfp4) group = 16;
  const std::vector<double> magnitudes = MagnitudesOf(spec.format);
  for (std::size_t begin = 0; begin < row.size(); begin += group) {
    if (spec.format == ActivationFormat::kBf16) break;
    const std::span<double> some = row.subspan(begin, std::min(group, row.size() - begin));
    RoundGroup(magnitudes, ScaleOf(spec, static_cast<float>(LargestOf(some))), some);
  }
  for (double& x : row) {
    x = static_cast<double>(Bf16ToFloat(FloatToBf16(static_cast<float>(x))));
  }
}

}  // namespace switchyard::testing
