// FP4 E2M1 codes: sign (bit 3), 2 bits of exponent (bias 1), 1 of fraction, after the OCP
// Microscaling specification. The magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4, 6; there is no infinity
// and no NaN.
//
// Pure functions; a few instructions each. They rely on the default rounding mode of the FPU.
#pragma once

#include <bit>
#include <cstdint>

namespace switchyard {

using Fp4E2m1 = std::uint8_t;  // the low four bits; the high four are zero

inline constexpr float kE2m1Max = 6.0F;

// To nearest, ties to an even code (0.25 -> 0, 0.75 -> 1, 2.5 -> 2, 5 -> 4). Larger magnitudes
// and infinity become 6. NaN becomes +6, as with PTX's cvt.rn.satfinite: a caller that must not
// lose a NaN marks its block's scale.
inline Fp4E2m1 FloatToE2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return 0x7;
  const std::uint32_t sign = (bits >> 28) & 0x8U;
  if (magnitude >= std::bit_cast<std::uint32_t>(5.0F)) {  // 5 itself is a tie and goes to 4
    return static_cast<Fp4E2m1>(sign | (magnitude == std::bit_cast<std::uint32_t>(5.0F) ? 6 : 7));
  }
  // Adding 2^22 makes the FPU round to a multiple of 0.5; the sum's low bits are then the code.
  if (magnitude < std::bit_cast<std::uint32_t>(1.0F)) {  // Steps of 0.5, the ulp of 2^22.
    constexpr float kShift = 4194304.0F;
    const float shifted = std::bit_cast<float>(magnitude) + kShift;
    return static_cast<Fp4E2m1>(
        sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift)));
  }
  // Rounds the fraction to one bit, ties to even, then moves the exponent's bias from 127 to 1.
  const std::uint32_t rounding = 0x1fffffU + ((magnitude >> 22) & 1U);
  return static_cast<Fp4E2m1>(sign | (((magnitude + rounding) >> 22) - (126U << 1)));
}

// Exact; reads only the low four bits.
inline float E2m1ToFloat(Fp4E2m1 code) {
  constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitudes[code & 0x7U];
  return (code & 0x8U) != 0 ? -magnitude : magnitude;
}

}  // namespace switchyard
