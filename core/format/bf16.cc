#include "core/format/bf16.h"

#include <cstddef>

namespace switchyard {

void FloatsToBf16(std::span<const float> in, std::span<Bf16> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = FloatToBf16(in[i]);
}

void Bf16ToFloats(std::span<const Bf16> in, std::span<float> out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = Bf16ToFloat(in[i]);
}

}  // namespace switchyard
