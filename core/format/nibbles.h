// The place of four-bit codes in a row of NVFP4 values on the wire: uint8 [hidden / 2], the even
// element of a pair in the low nibble, as PyTorch's float4_e2m1fn_x2 and DeepEP's hybrid-ep branch
// have it. An odd `hidden` leaves the last high nibble zero. The scales of a row lie behind its
// codes (core/format/wire_format.h, docs/adr/0021-rows-carry-their-scales.md). Pure and constexpr.
#pragma once

#include <cstdint>

namespace switchyard {

// Where one code is.
struct NibbleAt {
  std::int64_t byte = 0;
  int shift = 0;  // 0 or 4

  friend bool operator==(const NibbleAt&, const NibbleAt&) = default;
};
// The place of the code of value `element` >= 0 of a row.
constexpr NibbleAt NibbleOf(std::int64_t element) {
  return {.byte = element / 2, .shift = element % 2 == 0 ? 0 : 4};
}

}  // namespace switchyard
