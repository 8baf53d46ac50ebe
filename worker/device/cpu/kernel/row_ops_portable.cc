#include <cmath>

#include "worker/device/cpu/kernel/row_ops.h"

namespace switchyard {
namespace {

void WeightedSum(const float* const* rows, const float* weights, std::int64_t row_count,
                 std::int64_t hidden, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    float sum = 0;
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum = std::fma(weights[row], rows[row][i], sum);
    }
    out[i] = FloatToBf16(sum);
  }
}

void WeightedSumBf16(const Bf16* const* rows, const float* weights, std::int64_t row_count,
                     std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    float sum = 0;
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum = std::fma(weights[row], Bf16ToFloat(rows[row][i]), sum);
    }
    out[i] = sum;
  }
}

void SumBf16(const Bf16* const* rows, std::int64_t row_count, std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    float sum = row_count > 0 ? Bf16ToFloat(rows[0][i]) : 0.0F;
    for (std::int64_t row = 1; row < row_count; ++row) sum += Bf16ToFloat(rows[row][i]);
    out[i] = sum;
  }
}

void RoundToBf16(const float* in, std::int64_t count, Bf16* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = FloatToBf16(in[i]);
}

}  // namespace

constinit const RowKernels kPortableRowKernels = {.weighted_sum = WeightedSum,
                                                  .weighted_sum_bf16 = WeightedSumBf16,
                                                  .sum_bf16 = SumBf16,
                                                  .round_to_bf16 = RoundToBf16};

}  // namespace switchyard
