#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/decode/grouped_gemm_instances.h"
#include "worker/device/cuda/decode/sum_carry.cuh"
#include "worker/device/cuda/device_facts.h"

namespace switchyard::cuda {
namespace {

bool IsAligned(const void* pointer, std::uintptr_t unit) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % unit == 0;
}

bool IsValid(const GemmRows& rows, const GemmGroups& groups, const PackedWeights& weights,
             const GemmOutput& out, const GemmPlan& plan) {
  const std::int64_t row_bytes = RowBytesOf(weights.type, weights.k);
  const bool fp8 = weights.type == WeightType::kFp8;
  const bool gated = weights.order == WeightOrder::kGateUp256;
  if (weights.n <= 0 || weights.k <= 0 || row_bytes % 128 != 0) return false;
  if (weights.n % (weights.order == WeightOrder::kRows128 ? 128 : 256) != 0) return false;
  if (weights.order == WeightOrder::kGateUpInterleaved || (gated && !fp8)) return false;
  if (weights.of_group == nullptr) {
    if (!IsAligned(weights.data, 128) || (fp8 && !IsAligned(weights.scales, 4))) return false;
  } else if (!out.fp32 || (fp8 && weights.scales_of_group == nullptr)) {
    return false;
  }
  if (out.fp32 && weights.order != WeightOrder::kRows128) return false;
  if (!IsAligned(rows.rows, 16) || rows.stride % 16 != 0 || rows.stride < row_bytes) return false;
  const bool int8 = weights.type == WeightType::kInt8;
  if (IsNarrow(weights.type) && (!out.fp32 || weights.k % 128 != 0)) return false;
  if (int8 && (!out.fp32 || weights.k > kInt8KMax)) return false;
  const int scale_unit = weights.type == WeightType::kInt4Fp8 ? 8 : 4;
  if ((HasFp8Rows(weights.type) || int8) &&
      (rows.scale_offset % scale_unit != 0 || rows.scale_offset < 0)) {
    return false;
  }
  if (groups.groups < 0 || groups.groups > kGroupsMax || groups.counts == nullptr) return false;
  if (groups.offsets == nullptr && groups.slots_per_group < 0) return false;
  const std::int64_t out_bytes = gated ? weights.n / 2 : weights.n * (out.fp32 ? 4 : 2);
  if (!IsAligned(out.out, 16) || out.stride % 16 != 0 || out.stride < out_bytes) return false;
  if (gated && (out.scale_offset % 4 != 0 || out.scale_offset < out_bytes)) return false;
  return plan.window >= 1 && plan.early >= 0 && plan.ctas >= 0 &&
         (plan.row_tile == 24 || plan.row_tile == 32 || plan.row_tile == 64);
}

bool IsValid(const GemmCarry& carry, WeightOrder order, int row_tile, int ctas) {
  if (carry.memory == nullptr) return true;
  return ctas <= kCarryCtasMax && IsAligned(carry.memory, 256) &&
         carry.bytes >= CarryBytesOf(order, row_tile, ctas);
}

// Measured on an H200: the last round of whole units takes longer than its share of the bytes,
// by 0.45 of the time of a unit for a nearly empty round, by nothing for one that is three quarters
// full; cutting it costs 2 us, in which an SM reads 68 KB. After many rounds SMs are apart from
// each other anyway.
constexpr std::int64_t kCutRoundsMax = 8;

bool IsWorthCutting(const PackedWeights& weights, int groups) {
  constexpr std::int64_t kSms = 132;
  const std::int64_t tile = weights.order == WeightOrder::kRows128 ? 128 : 256;
  const std::int64_t units = groups * (weights.n / tile);
  const std::int64_t behind = units % kSms;
  if (units < kSms || units > kCutRoundsMax * kSms || behind == 0) return false;
  const std::int64_t unit_bytes = tile * RowBytesOf(weights.type, weights.k);
  return unit_bytes * (3 * kSms - 4 * behind) > 3 * kSms * (68 * 1024 * 100 / 45);
}

}  // namespace

std::int64_t CarryBytesOf(WeightOrder order, int row_tile, int ctas) {
  const int blocks = order == WeightOrder::kRows128 ? 1 : 2;
  return kCarryFlagBytes + std::int64_t{ctas} * blocks * (row_tile / 2) * kCarryThreads * 4;
}

GemmPlan PlanGroupedGemm(const PackedWeights& weights, int rows, int groups,
                         const GemmCarry& carry) {
  GemmPlan plan;
  plan.row_tile = rows <= 24 ? 24 : rows <= 32 ? 32 : 64;
  // Measured: some 64 to 80 KB in flight. A stage of 256 rows is 32 KB; where units are short,
  // their ends need more in flight.
  const bool by_128 = weights.order == WeightOrder::kRows128;
  const bool is_short = RowBytesOf(weights.type, weights.k) < 16 * 128;
  plan.window = by_128 ? 5 : is_short ? 4 : 2;
  plan.early = 5;
  if (IsNarrow(weights.type)) {
    plan.row_tile = rows <= 24 ? 24 : 32;
    plan.window = plan.early = 3;  // some 52 KB
  } else if (IsWorthCutting(weights, groups)) {
    plan.carry = carry;
  }
  return plan;
}

cudaError_t GroupedGemm(const GemmRows& rows, const GemmGroups& groups,
                        const PackedWeights& weights, const GemmOutput& out, const GemmPlan& plan,
                        bool dependent, cudaStream_t stream) {
  if (groups.groups == 0) return cudaSuccess;
  if (!IsValid(rows, groups, weights, out, plan)) return cudaErrorInvalidValue;
  int ctas = plan.ctas;
  if (ctas == 0) {
    const cudaError_t known = MultiprocessorsOfCurrentDevice(&ctas);
    if (known != cudaSuccess) return known;
  }
  if (!IsValid(plan.carry, weights.order, plan.row_tile, ctas)) return cudaErrorInvalidValue;
  const std::int64_t tile = weights.order == WeightOrder::kRows128 ? 128 : 256;
  GemmArguments args = {};
  args.weights = weights.data;
  args.weight_scales = weights.scales;
  args.weights_of_group = weights.of_group;
  args.scales_of_group = weights.scales_of_group;
  args.rows = rows.rows;
  args.row_stride = rows.stride;
  args.scale_offset = rows.scale_offset;
  args.row_index = rows.row_index;
  args.groups = {groups.counts, groups.offsets, groups.slots_per_group};
  args.out = out.out;
  args.out_stride = out.stride;
  args.out_scale_offset = out.scale_offset;
  args.carry = IsNarrow(weights.type) ? nullptr : plan.carry.memory;
  args.group_count = groups.groups;
  args.weight_tiles = static_cast<int>(weights.n / tile);
  args.k_blocks = static_cast<int>(BlocksOf(weights.type, weights.k));
  args.window = plan.window;
  args.early = plan.early;
  const GemmLaunch launch = out.fp32 ? FindFp32Gemm(weights.type, plan.row_tile)
                                     : FindGemm(weights.type, weights.order, plan.row_tile);
  return launch == nullptr ? cudaErrorInvalidValue : launch(args, ctas, dependent, stream);
}

}  // namespace switchyard::cuda
