#include "worker/device/cuda/decode/fused_ffn.cuh"
#include "worker/device/cuda/device_facts.h"

namespace switchyard::cuda {
namespace {

constexpr std::int64_t kAlign = 128;
constexpr std::int64_t kHiddenMax = 4096;
constexpr std::int64_t kIntermediateMax = 64 * kHiddenScalesOfRow;

constexpr std::int64_t RoundUp(std::int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Where the parts of the workspace begin.
struct Workspace {
  std::int64_t counters = 0;
  std::int64_t scales;
  std::int64_t hidden;
  std::int64_t bytes;

  Workspace(const FfnShape& shape, std::int32_t groups, std::int64_t slots)
      : scales(RoundUp(8 + 2 * groups * 4)),
        hidden(scales + RoundUp(slots * kHiddenScalesOfRow * 4)),
        bytes(hidden + RoundUp(slots * shape.intermediate)) {}
};

bool IsAligned(const void* pointer, std::uintptr_t unit) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % unit == 0;
}

bool AreWeights(const PackedWeights& w, WeightOrder order) {
  return w.type == WeightType::kFp8 && w.order == order && IsAligned(w.data, 128) &&
         IsAligned(w.scales, 4);
}

bool IsValid(const FusedFfnArguments& args, const FfnShape& shape, const GemmPlan& plan) {
  if (!HasFusedFfn(shape) || !AreWeights(args.w13, WeightOrder::kGateUpInterleaved) ||
      !AreWeights(args.w2, WeightOrder::kRows128)) {
    return false;
  }
  if (args.w13.n != 2 * shape.intermediate || args.w2.n != shape.hidden) return false;
  const GemmRows& rows = args.rows;
  if (!IsAligned(rows.rows, 16) || rows.stride % 16 != 0 || rows.stride < shape.hidden ||
      rows.scale_offset % 4 != 0 || rows.scale_offset < 0) {
    return false;
  }
  const GemmGroups& groups = args.groups;
  if (groups.counts == nullptr || groups.groups < 0 || groups.groups > kGroupsMax) return false;
  if (!IsAligned(args.out.out, 16) || args.out.stride % 16 != 0 ||
      args.out.stride < 2 * shape.hidden) {
    return false;
  }
  return args.slots >= 0 && IsAligned(args.workspace, 128) && plan.window >= 1 && plan.early >= 0 &&
         plan.ctas >= 0;
}

}  // namespace

bool HasFusedFfn(const FfnShape& shape) {
  return shape.hidden > 0 && shape.hidden % 256 == 0 && shape.hidden <= kHiddenMax &&
         shape.intermediate > 0 && shape.intermediate % 128 == 0 &&
         shape.intermediate <= kIntermediateMax;
}

std::int64_t FusedFfnWorkspaceBytes(const FfnShape& shape, std::int32_t groups,
                                    std::int64_t slots) {
  return Workspace(shape, groups, slots).bytes;
}

GemmPlan PlanFusedFfn(int rows) {
  GemmPlan plan;
  plan.row_tile = rows <= 16 ? 16 : rows <= 32 ? 32 : 48;
  plan.window = 4;
  plan.early = 8;
  return plan;
}

cudaError_t FusedFfn(const FusedFfnArguments& in, const GemmPlan& plan, bool dependent,
                     cudaStream_t stream) {
  if (in.groups.groups == 0) return cudaSuccess;
  const FfnShape shape = {in.w13.k, in.w2.k};
  if (!IsValid(in, shape, plan)) return cudaErrorInvalidValue;
  int multiprocessors = 0;
  const cudaError_t known = MultiprocessorsOfCurrentDevice(&multiprocessors);
  if (known != cudaSuccess) return known;
  const int ctas = plan.ctas == 0 ? multiprocessors : plan.ctas;
  if (ctas > multiprocessors) return cudaErrorInvalidValue;  // they wait for each other
  const Workspace at(shape, in.groups.groups, in.slots);
  FfnArguments args = {};
  args.w13 = in.w13.data;
  args.w2 = in.w2.data;
  args.scales13 = in.w13.scales;
  args.scales2 = in.w2.scales;
  args.rows = in.rows.rows;
  args.row_stride = in.rows.stride;
  args.scale_offset = in.rows.scale_offset;
  args.row_index = in.rows.row_index;
  args.groups = {in.groups.counts, in.groups.offsets, in.groups.slots_per_group};
  args.hidden = in.workspace + at.hidden;
  args.hidden_scales = reinterpret_cast<float*>(in.workspace + at.scales);
  args.finished = reinterpret_cast<std::uint64_t*>(in.workspace + at.counters);
  args.ready = reinterpret_cast<std::uint32_t*>(args.finished + 1);
  args.out = in.out.out;
  args.out_stride = in.out.stride;
  args.group_count = in.groups.groups;
  args.k_blocks1 = static_cast<int>(shape.hidden / 128);
  args.k_blocks2 = static_cast<int>(shape.intermediate / 128);
  args.tiles1 = static_cast<int>(shape.intermediate / 64);
  args.tiles2 = static_cast<int>(shape.hidden / 128);
  args.window = plan.window;
  args.early = plan.early;
  switch (plan.row_tile) {
    case 16:
      return LaunchFusedFfn<16>(args, ctas, dependent, stream);
    case 32:
      return LaunchFusedFfn<32>(args, ctas, dependent, stream);
    case 48:
      return LaunchFusedFfn<48>(args, ctas, dependent, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace switchyard::cuda
