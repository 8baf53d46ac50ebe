// Rotary position embedding in the "rotate half" layout: element i of a head is rotated with
// element i + head_dim / 2 by the angle position * theta^(-2i / head_dim).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace switchyard::qwen3_moe {

// Immutable after construction; thread-safe.
class Rope {
 public:
  // REQUIRES: `head_dim` is even and > 0.
  Rope(std::size_t head_dim, double theta);

  // Rotates `heads` (dense rows of head_dim) for `position` in place. Angles are FP32 products, as
  // in the reference implementation. Each call computes head_dim / 2 sines, so pass all heads of a
  // token at once.
  void Turn(std::size_t position, std::span<float> heads) const;

 private:
  // theta^(-2i / head_dim) for each pair; the position only scales it.
  std::vector<float> inverse_frequencies_;
};

}  // namespace switchyard::qwen3_moe
