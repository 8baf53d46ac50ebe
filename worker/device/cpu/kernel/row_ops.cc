#include "worker/device/cpu/kernel/row_ops.h"

namespace switchyard {

void CpuRowOps::WeightedSum(std::span<const float* const> rows, std::span<const float> weights,
                            std::int64_t hidden, Bf16* out) const {
  kernels_->weighted_sum(rows.data(), weights.data(), static_cast<std::int64_t>(rows.size()),
                         hidden, out);
}

void CpuRowOps::WeightedSumBf16(std::span<const Bf16* const> rows, std::span<const float> weights,
                                std::int64_t hidden, float* out) const {
  kernels_->weighted_sum_bf16(rows.data(), weights.data(), static_cast<std::int64_t>(rows.size()),
                              hidden, out);
}

void CpuRowOps::SumBf16(std::span<const Bf16* const> rows, std::int64_t hidden, float* out) const {
  kernels_->sum_bf16(rows.data(), static_cast<std::int64_t>(rows.size()), hidden, out);
}

void CpuRowOps::RoundToBf16(const float* in, std::int64_t count, Bf16* out) const {
  kernels_->round_to_bf16(in, count, out);
}

const RowKernels& ChooseRowKernels([[maybe_unused]] const CpuFeatures& cpu) {
#if defined(SY_WITH_X86_KERNELS)
  if (cpu.avx512) return kAvx512RowKernels;
  if (cpu.avx2) return kAvx2RowKernels;
#endif
  return kPortableRowKernels;
}

}  // namespace switchyard
