// Sums over rows in host memory, in the fixed order that bit-equality needs: element by element,
// terms in the order given, FP32. Outputs do not overlap inputs.
#pragma once

#include <cstdint>
#include <span>

#include "core/format/bf16.h"

namespace switchyard {

// Thread-safe; allocates nothing. `hidden` elements a row.
class RowOps {
 public:
  virtual ~RowOps() = default;
  // out = bf16(((0 + w0*r0) + w1*r1) + ...), each step one fused multiply-add, rounded once.
  virtual void WeightedSum(std::span<const float* const> rows, std::span<const float> weights,
                           std::int64_t hidden, Bf16* out) const = 0;
  // out = ((0 + w0*r0) + w1*r1) + ..., each step one fused multiply-add, not rounded.
  virtual void WeightedSumBf16(std::span<const Bf16* const> rows, std::span<const float> weights,
                               std::int64_t hidden, float* out) const = 0;
  // out = (r0 + r1) + ...; zeros when there are no rows.
  virtual void SumBf16(std::span<const Bf16* const> rows, std::int64_t hidden,
                       float* out) const = 0;
  // Each value by itself, to nearest even, as FloatToBf16. `in` and `out` may not overlap.
  virtual void RoundToBf16(const float* in, std::int64_t count, Bf16* out) const = 0;
};

}  // namespace switchyard
