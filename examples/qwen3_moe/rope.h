// Rotary position embedding in the "rotate half" arrangement: element i of a head turns with
// element i + head_dim / 2, by position * theta^(-2i / head_dim).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace switchyard::qwen3_moe {

// Immutable after construction; thread-safe.
class Rope {
 public:
  // `head_dim` is even and > 0.
  Rope(std::size_t head_dim, double theta);

  // Turns `heads` (dense rows of head_dim) by `position` in place. Angles are FP32 products, as in
  // the reference implementation. Costs head_dim / 2 sines a call: turn all heads of a token at
  // once.
  void Turn(std::size_t position, std::span<float> heads) const;

 private:
  std::vector<float> inverse_frequencies_;
};

}  // namespace switchyard::qwen3_moe
