#include "worker/device/host/row_sums.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/format/bf16.h"

namespace switchyard {

void SumRows(const SumRun& run, const RowOps& ops) {
  // A BF16 row is summed in FP32 block by block, so that the sum stays in the L1 cache.
  constexpr std::int64_t kBlock = 1024;
  std::array<float, kBlock> sums;
  std::array<const Bf16*, kTermsMax> terms;
  for (std::size_t row = 0; row + 1 < run.begin.size(); ++row) {
    const std::size_t first = run.begin[row];
    const std::size_t count = run.begin[row + 1] - first;
    const std::span<const Bf16* const> whole = run.terms.subspan(first, count);
    const std::span<const float> weights =
        run.weights.empty() ? run.weights : run.weights.subspan(first, count);
    const auto sum = [&](std::span<const Bf16* const> rows, std::int64_t width, float* out) {
      if (run.weights.empty()) {
        ops.SumBf16(rows, width, out);
      } else {
        ops.WeightedSumBf16(rows, weights, width, out);
      }
    };
    const std::int64_t at = static_cast<std::int64_t>(row) * run.y_stride;
    if (run.y_dtype == OutputDtype::kF32) {
      sum(whole, run.hidden, static_cast<float*>(run.y) + at);
      continue;
    }
    Bf16* y = static_cast<Bf16*>(run.y) + at;
    for (std::int64_t column = 0; column < run.hidden; column += kBlock) {
      const std::int64_t width = std::min(kBlock, run.hidden - column);
      for (std::size_t t = 0; t < count; ++t) terms[t] = whole[t] + column;
      sum({terms.data(), count}, width, sums.data());
      ops.RoundToBf16(sums.data(), width, y + column);
    }
  }
}

}  // namespace switchyard
