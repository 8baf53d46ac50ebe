// BF16 as 16 raw bits, with the one rounding that the whole project uses: to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>

namespace switchyard {

using Bf16 = std::uint16_t;

// Exact: BF16 is the upper half of an FP32 number.
inline float Bf16ToFloat(Bf16 bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// NaN stays NaN (quiet); overflow goes to infinity.
inline Bf16 FloatToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // The quiet bit is set, because a NaN whose payload lies in the lower half would become infinity.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bf16>((bits >> 16) | 0x40U);
  // Adds just under half a step, and the rest of the half only when the result would be odd.
  const std::uint32_t rounding = 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<Bf16>((bits + rounding) >> 16);
}

// Element by element; the spans have one length.
void FloatsToBf16(std::span<const float> in, std::span<Bf16> out);
void Bf16ToFloats(std::span<const Bf16> in, std::span<float> out);

// A matrix in the caller's memory; `stride` counts elements from one row to the next.
struct Bf16Rows {
  const Bf16* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};
// The first row that holds a NaN, for strict sessions; nullopt when there is none. Reads each
// element at most once.
std::optional<std::int64_t> FirstNanRow(const Bf16Rows& matrix);

}  // namespace switchyard
