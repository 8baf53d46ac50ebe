// FP8 as raw bytes: E4M3 values and the UE8M0 scales that go with them.
//
// E4M3 is the "fn" variant of OCP's 8-bit floating point specification (OFP8): sign, 4 bits of
// exponent (bias 7), 3 of fraction; no infinity, 0x7f and 0xff are NaN, 448 is the largest value,
// 2^-9 the smallest above zero. UE8M0 is the scale of the OCP Microscaling formats: 2^(byte - 127),
// 0xff is NaN, no sign, no zero.
//
// Pure functions; no allocation, no locale, a few instructions each. They rely on the default
// rounding mode of the FPU (to nearest even).
#pragma once

#include <bit>
#include <cstdint>

namespace switchyard {

using Fp8E4m3 = std::uint8_t;
using Ue8m0 = std::uint8_t;

// 0x7e, which is 1.75 * 2^8; the code after it is NaN.
inline constexpr float kE4m3Max = 448.0F;
inline constexpr Fp8E4m3 kE4m3MaxCode = 0x7e;
inline constexpr Fp8E4m3 kE4m3Nan = 0x7f;
inline constexpr Ue8m0 kUe8m0Nan = 0xff;

// To nearest, ties to an even code. Larger magnitudes and infinity become 448; a NaN keeps its
// sign.
inline Fp8E4m3 FloatToE4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<Fp8E4m3>(sign | kE4m3Nan);
  std::uint32_t code = 0;
  if (magnitude < 0x3c800000U) {  // Below 2^-6 codes count steps of 2^-9, the ulp of 2^14.
    constexpr float kShift = 16384.0F;
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kShift) -
           std::bit_cast<std::uint32_t>(kShift);
  } else {
    // Adds half a step less one, and one more when the code below is odd: ties go to the even code.
    // A carry into the exponent is the right result.
    const std::uint32_t rounding = 0x7ffffU + ((magnitude >> 20) & 1U);
    code = ((magnitude + rounding) >> 20) - (120U << 3);  // exponent bias 127 to 7
  }
  return static_cast<Fp8E4m3>(sign | (code < kE4m3MaxCode ? code : kE4m3MaxCode));
}

// Exact; 0x7f and 0xff give NaN of their sign.
inline float E4m3ToFloat(Fp8E4m3 code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == kE4m3Nan) return std::bit_cast<float>(sign | 0x7fc00000U);
  // The exponent field is 0: no implied leading bit.
  if (magnitude < 8) {
    const auto steps = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(steps));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
}

// The smallest power of two that is not below `value`: exponent bits, plus one when there is a
// fraction. Values up to 2^-127 give byte 0, values above 2^127 and infinity the largest, 254;
// NaN and negative values give 0xff.
inline Ue8m0 FloatToUe8m0RoundUp(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits == 0x80000000U) return 0;
  if (bits > 0x7f800000U) return kUe8m0Nan;
  if (bits <= 0x00400000U) return 0;  // 2^-127 and smaller
  // Any fraction at all raises the exponent, so that no value of a group exceeds the largest code.
  const std::uint32_t byte = (bits >> 23) + static_cast<std::uint32_t>((bits & 0x7fffffU) != 0);
  return static_cast<Ue8m0>(byte < 254 ? byte : 254);
}

// Exact.
inline float Ue8m0ToFloat(Ue8m0 byte) {
  if (byte == kUe8m0Nan) return std::bit_cast<float>(0x7fc00000U);
  // A subnormal number in FP32, so its bits are not just the exponent.
  if (byte == 0) return 0x1p-127F;
  return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

}  // namespace switchyard
