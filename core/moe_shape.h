// The sizes of a model's MoE layers, which all layers of a deployment share.
#pragma once

#include <cstdint>

namespace switchyard {

// One MoE layer: x [tokens, hidden]; expert e: w1 (gate), w3 (up) [intermediate, hidden] and
// w2 (down) [hidden, intermediate]. All > 0; top_k <= experts.
// In 32 bits, as checkpoints and frames store them; products are computed in 64.
struct MoeShape {
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;

  friend constexpr bool operator==(const MoeShape&, const MoeShape&) = default;
};

}  // namespace switchyard
