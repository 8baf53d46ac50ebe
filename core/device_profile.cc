#include "core/device_profile.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::array kKindNames{"cpu", "cuda", "ascend"};
static_assert(kKindNames.size() == kDeviceKinds);

constexpr WireRow kNative{WireSupport::kNative, DispatchDtype::kBf16};
constexpr WireRow kAbsent{WireSupport::kAbsent, DispatchDtype::kBf16};
constexpr WireRow kRefused{WireSupport::kRefused, DispatchDtype::kBf16};
constexpr WireRow Instead(DispatchDtype dtype) { return {WireSupport::kInstead, dtype}; }

// By DispatchDtype: BF16, FP8, INT8, NVFP4.
using WireRows = std::array<WireRow, 4>;
constexpr WireRows kCpuWire{kNative, kNative, kNative, kNative};
// GPU libraries have no INT8 rows and send FP8 in their place (SGLang PR 22822).
constexpr WireRows kSm100Wire{kNative, kNative, Instead(DispatchDtype::kFp8), kNative};
// NVFP4 experts need SM100, and DeepEP's main branch has no kernels that send NVFP4.
constexpr WireRows kSm90Wire{kNative, kNative, Instead(DispatchDtype::kFp8), kAbsent};
// A2 and A3 have no FP8: rows travel as INT8. No NPU has NVFP4.
constexpr WireRows kAscendA2Wire{kNative, Instead(DispatchDtype::kInt8), kNative, kRefused};
constexpr WireRows kAscendA5Wire{kNative, kNative, kNative, kRefused};

constexpr ScaleKind kF32 = ScaleKind::kF32;
constexpr ScaleKind kUe8m0 = ScaleKind::kUe8m0;

// The limits of low_latency on Ascend are those of sgl-kernel-npu's documents for A2 and A3; A5
// gets the same until its own are known. Between nodes, A2 does not quantize in normal mode.
constexpr std::array<DeviceProfile, 7> kProfiles{{
    {"cpu", DeviceKind::kCpu, 32, 0, false, "CPU", kCpuWire, kF32, 0},
    {"deepep_v1", DeviceKind::kCuda, 11, 1024, true, "GPU with DeepEP V1", kSm90Wire, kF32, 0},
    {"cuda_sm90", DeviceKind::kCuda, 32, 0, false, "GPU (SM90)", kSm90Wire, kF32, 0},
    {"cuda_sm100", DeviceKind::kCuda, 32, 0, false, "GPU (SM100)", kSm100Wire, kUe8m0, 0},
    {"ascend_a2", DeviceKind::kAscend, 16, 512, true, "Ascend A2 NPU", kAscendA2Wire, kF32, 8},
    {"ascend_a3", DeviceKind::kAscend, 16, 512, true, "Ascend A3 NPU", kAscendA2Wire, kF32, 0},
    {"ascend_a5", DeviceKind::kAscend, 16, 512, true, "Ascend A5 NPU", kAscendA5Wire, kF32, 0},
}};

}  // namespace

absl::string_view DeviceKindName(DeviceKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

bool DeviceKindFromName(absl::string_view name, DeviceKind* kind) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (name == kKindNames[i]) {
      *kind = static_cast<DeviceKind>(i);
      return true;
    }
  }
  return false;
}

std::span<const DeviceProfile> DeviceProfiles() { return kProfiles; }

const DeviceProfile* FindDeviceProfile(absl::string_view name) {
  for (const DeviceProfile& profile : kProfiles) {
    if (name == profile.name) return &profile;
  }
  return nullptr;
}

// Plans are checked before they are built, so that a limit is an error of the deployment and not a
// crash of an EP library at the first step.
absl::Status CheckLimits(const DeviceProfile& profile, const ProfileDemand& demand) {
  if (demand.shape.top_k > profile.max_top_k) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadTopK,
        absl::StrFormat("top-k %d exceeds the limit %d of device profile %s; use normal mode there "
                        "or another worker kind",
                        demand.shape.top_k, profile.max_top_k, profile.name),
        {{"profile", profile.name},
         {"want", absl::StrCat(demand.shape.top_k)},
         {"have", absl::StrCat(profile.max_top_k)}});
  }
  if (profile.max_tokens_per_step > 0 && demand.max_tokens_per_step > profile.max_tokens_per_step) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat(
            "max_tokens_per_step %d exceeds the limit %d of device profile %s; lower it",
            demand.max_tokens_per_step, profile.max_tokens_per_step, profile.name),
        {{"profile", profile.name},
         {"want", absl::StrCat(demand.max_tokens_per_step)},
         {"have", absl::StrCat(profile.max_tokens_per_step)}});
  }
  // 0 ranks: the caller does not know them yet and checks again when it does.
  if (profile.experts_divide_by_ranks && demand.ranks > 0 &&
      demand.shape.experts % demand.ranks != 0) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("%d experts do not divide by %d ranks, which device profile %s requires; "
                        "change the number of ranks or use p2p",
                        demand.shape.experts, demand.ranks, profile.name),
        {{"profile", profile.name},
         {"experts", absl::StrCat(demand.shape.experts)},
         {"ranks", absl::StrCat(demand.ranks)}});
  }
  return absl::OkStatus();
}

}  // namespace switchyard
