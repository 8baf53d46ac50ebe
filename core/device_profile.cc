#include "core/device_profile.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/error.h"

namespace switchyard {
namespace {

constexpr std::array<const char*, 3> kKindNames{"cpu", "cuda", "ascend"};

constexpr std::array<DeviceProfile, 2> kProfiles{{
    {"cpu", DeviceKind::kCpu, 32, 0, false},
    {"deepep_v1", DeviceKind::kCuda, 11, 1024, true},
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
