#include "worker/device/cuda/gemm/prefill_launch.cuh"
#include "worker/device/cuda/gemm/prefill_packed.h"

namespace switchyard::cuda {
namespace {

bool IsValidCall(const PrefillRows& rows, const GemmGroups& groups, const PackedWeights& weights,
                 const PrefillScratch& scratch) {
  const bool fp8 = weights.type == WeightType::kFp8;
  if (!HasPrefillProduct(weights) || !IsAligned(rows.rows) || rows.stride % 16 != 0 ||
      rows.stride < RowBytesOf(weights.type, weights.k) || rows.count < 1 ||
      rows.count >= std::int64_t{1} << 31) {
    return false;
  }
  if (rows.index != nullptr && rows.count > (std::int64_t{1} << 36) / rows.stride) return false;
  if (fp8 && rows.index == nullptr && (!IsAligned(rows.scales) || rows.scale_stride % 4 != 0)) {
    return false;
  }
  if (fp8 && rows.scales == nullptr) return false;
  if (weights.type == WeightType::kInt8 && rows.scales == nullptr) return false;
  return groups.counts != nullptr && groups.offsets != nullptr && groups.groups > 0 &&
         scratch.units_taken != nullptr && (scratch.sms == 0 || scratch.sms >= 2);
}

template <PrefillKind Kind, bool Gather = false>
cudaError_t Launch(const PrefillRows& rows, const GemmGroups& groups, const PackedWeights& weights,
                   const PrefillScratch& scratch, PrefillArgs args, cudaStream_t stream) {
  const std::int64_t row_bytes = RowBytesOf(weights.type, weights.k);
  CUtensorMap a = {};
  if constexpr (!Gather) {
    const cudaError_t error = EncodeTensorMap(
        {.data = rows.rows, .row_bytes = row_bytes, .rows = rows.count, .stride = rows.stride},
        kTileRows, &a);
    if (error != cudaSuccess) return error;
  }
  args.counts = groups.counts;
  args.offsets = groups.offsets;
  args.units_taken = scratch.units_taken;
  args.experts = groups.groups;
  args.n = static_cast<int>(IsGated(Kind) ? weights.n / 2 : weights.n);
  args.b_step = IsGated(Kind) ? kBoxRows : 2 * kBoxRows;
  args.b_second = IsGated(Kind) ? args.n : kBoxRows;
  args.b_blocks = static_cast<int>(weights.n / kBoxRows);
  args.b_of_expert = weights.of_group;
  args.b_scales_of_expert = weights.scales_of_group;
  args.column_blocks = (args.n + args.b_step - 1) / args.b_step;
  args.k_blocks = static_cast<int>(row_bytes / kStageDepth);
  args.band = 8;
  args.a_scales = rows.scales;
  args.a_scales_row = Gather ? 1 : rows.scale_stride;
  args.gathered = rows.rows;
  args.gather = {.rows = rows.index,
                 .source_rows = rows.count,
                 .row_bytes = rows.stride,
                 .scales_row = rows.scale_stride,
                 .scales_block = 1};
  return LaunchPersistent<Kind, Gather>(args, a, a, a, stream, scratch.sms);
}

}  // namespace

bool HasPrefillProduct(const PackedWeights& weights) {
  return !IsNarrow(weights.type) && weights.order == WeightOrder::kRows128 &&
         weights.of_group != nullptr &&
         (weights.type != WeightType::kFp8 || weights.scales_of_group != nullptr) &&
         (weights.type != WeightType::kInt8 || weights.k <= kInt8KMax) && weights.n > 0 &&
         weights.n % 128 == 0 && weights.k > 0 && weights.k % 128 == 0 &&
         RowBytesOf(weights.type, weights.k) >= 2 * kStageDepth &&
         weights.n < std::int64_t{1} << 24 && weights.k < std::int64_t{1} << 24;
}

cudaError_t LaunchPrefillSums(const PrefillRows& rows, const GemmGroups& groups,
                              const PackedWeights& weights, const PrefillSums& out,
                              const PrefillScratch& scratch, cudaStream_t stream) {
  if (!IsValidCall(rows, groups, weights, scratch) || rows.index != nullptr ||
      !IsAligned(out.out) || out.stride % 4 != 0 || out.stride < weights.n) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.out = out.out;
  args.out_stride = out.stride;
  switch (weights.type) {
    case WeightType::kFp8:
      return Launch<PrefillKind::kFp8Sums>(rows, groups, weights, scratch, args, stream);
    case WeightType::kBf16:
      return Launch<PrefillKind::kBf16Sums>(rows, groups, weights, scratch, args, stream);
    case WeightType::kInt8:
      return Launch<PrefillKind::kInt8Sums>(rows, groups, weights, scratch, args, stream);
    case WeightType::kInt4:
    case WeightType::kInt4Fp8:
    case WeightType::kE2m1:
      break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchPrefillAnswers(const PrefillRows& rows, const GemmGroups& groups,
                                 const PackedWeights& weights, const PrefillAnswers& out,
                                 const PrefillScratch& scratch, cudaStream_t stream) {
  if (!IsValidCall(rows, groups, weights, scratch) || rows.index != nullptr ||
      !IsAligned(out.out) || out.stride % 8 != 0 || out.stride < weights.n) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.out = out.out;
  args.out_stride = out.stride;
  if (weights.type == WeightType::kFp8) {
    return Launch<PrefillKind::kFp8Answers>(rows, groups, weights, scratch, args, stream);
  }
  if (weights.type != WeightType::kBf16) return cudaErrorInvalidValue;
  return Launch<PrefillKind::kBf16Answers>(rows, groups, weights, scratch, args, stream);
}

cudaError_t LaunchPrefillHidden(const PrefillRows& rows, const GemmGroups& groups,
                                const PackedWeights& weights, const PrefillHidden& out,
                                const PrefillScratch& scratch, cudaStream_t stream) {
  const bool fp8 = weights.type == WeightType::kFp8;
  const std::int64_t value_bytes = fp8 ? 1 : 2;
  if (!IsValidCall(rows, groups, weights, scratch) || weights.type == WeightType::kInt8 ||
      weights.n % 256 != 0 || !IsAligned(out.rows) || out.stride % 16 != 0 ||
      out.stride < weights.n / 2 * value_bytes || (fp8 && out.scales == nullptr)) {
    return cudaErrorInvalidValue;
  }
  PrefillArgs args = {};
  args.out = out.rows;
  args.out_stride = out.stride / value_bytes;
  args.out_scales = out.scales;
  args.out_scales_row = out.scale_stride;
  using enum PrefillKind;
  if (rows.index != nullptr) {
    return fp8 ? Launch<kFp8Hidden, true>(rows, groups, weights, scratch, args, stream)
               : Launch<kBf16Hidden, true>(rows, groups, weights, scratch, args, stream);
  }
  return fp8 ? Launch<kFp8Hidden>(rows, groups, weights, scratch, args, stream)
             : Launch<kBf16Hidden>(rows, groups, weights, scratch, args, stream);
}

}  // namespace switchyard::cuda
