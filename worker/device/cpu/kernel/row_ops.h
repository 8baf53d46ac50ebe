// RowOps of the cpu device. Three implementations, bit-identical for every input but the payload of
// a NaN: portable (std::fma), AVX2 with FMA, and AVX-512.
#pragma once

#include <cstdint>

#include "worker/device/cpu/machine/cpuid.h"
#include "worker/device/host/row_ops.h"

namespace switchyard {

// Plain functions, so that the files for x86 share no inline code with the rest. Each sums in the
// order of its rows: another order would give other bits. `rows` and `weights` have `row_count`
// entries; each row and `out` have `hidden` values.
struct RowKernels {
  void (*weighted_sum)(const float* const* rows, const float* weights, std::int64_t row_count,
                       std::int64_t hidden, Bf16* out);
  void (*weighted_sum_bf16)(const Bf16* const* rows, const float* weights, std::int64_t row_count,
                            std::int64_t hidden, float* out);
  void (*sum_bf16)(const Bf16* const* rows, std::int64_t row_count, std::int64_t hidden,
                   float* out);
  void (*round_to_bf16)(const float* in, std::int64_t count, Bf16* out);
};

extern const RowKernels kPortableRowKernels;
extern const RowKernels kAvx2RowKernels;    // x86-64 builds only
extern const RowKernels kAvx512RowKernels;  // x86-64 builds only

// Stateless but for `kernels`, which outlives it.
class CpuRowOps final : public RowOps {
 public:
  explicit CpuRowOps(const RowKernels& kernels) : kernels_(&kernels) {}

  void WeightedSum(std::span<const float* const> rows, std::span<const float> weights,
                   std::int64_t hidden, Bf16* out) const override;
  void WeightedSumBf16(std::span<const Bf16* const> rows, std::span<const float> weights,
                       std::int64_t hidden, float* out) const override;
  void SumBf16(std::span<const Bf16* const> rows, std::int64_t hidden, float* out) const override;
  void RoundToBf16(const float* in, std::int64_t count, Bf16* out) const override;

 private:
  const RowKernels* kernels_;
};

// The fastest that `cpu` can run.
const RowKernels& ChooseRowKernels(const CpuFeatures& cpu);

}  // namespace switchyard
