#include "core/format/bf16.h"

#include <algorithm>
#include <cstddef>

namespace switchyard {

void FloatsToBf16(std::span<const float> in, std::span<Bf16> out) {
  // No branch besides NaN's, so that the compiler makes vector code of it.
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = FloatToBf16(in[i]);
}

void Bf16ToFloats(std::span<const Bf16> in, std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = Bf16ToFloat(in[i]);
}

std::optional<std::int64_t> FirstNanRow(const Bf16Rows& matrix) {
  constexpr Bf16 kMagnitude = 0x7fff;
  constexpr Bf16 kInfinity = 0x7f80;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    const Bf16* const row = matrix.data + r * matrix.stride;
    // The largest magnitude of the row, without leaving early: this loop becomes vector code, and
    // rows with a NaN are rare.
    Bf16 largest = 0;
    for (std::int64_t i = 0; i < matrix.columns; ++i) {
      largest = std::max(largest, static_cast<Bf16>(row[i] & kMagnitude));
    }
    if (largest > kInfinity) return r;
  }
  return std::nullopt;
}

}  // namespace switchyard
