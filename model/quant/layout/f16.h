// IEEE 754 half precision as 16 raw bits, rounded to nearest, ties to even.
//
// Scales of AWQ checkpoints are F16; NPUs round the product of two scales to it. Pure functions;
// they rely on the default rounding mode of the FPU.
#pragma once

#include <bit>
#include <cstdint>

namespace switchyard {

using F16 = std::uint16_t;

// Exact; NaN stays NaN.
inline float F16ToFloat(F16 bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  }
  if (magnitude < 0x400U) {  // steps of 2^-24
    const float steps = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(steps));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));  // bias 15 to 127
}

// Rounds to nearest, ties to even. Overflow goes to infinity from 65520 up, which is half a step
// above the largest number, 65504; NaN stays NaN (quiet).
inline F16 FloatToF16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // The payload is dropped: it does not fit, and only "is NaN" matters.
  if (magnitude > 0x7f800000U) return static_cast<F16>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<F16>(sign | 0x7c00U);  // from 65520 up
  if (magnitude < 0x38800000U) {  // Below 2^-14 codes count steps of 2^-24, the ulp of 0.5.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<F16>(
        sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F)));
  }
  // Half a step less one, and one more when the code below is odd. A carry into the exponent is
  // right.
  const std::uint32_t rounding = 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<F16>(sign | (((magnitude + rounding) >> 13) - (112U << 10)));
}

}  // namespace switchyard
