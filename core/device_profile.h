// Limits of a kind of device or of an EP library, as data: rows that plans are checked against.
//
// Sources: cpu, ours; deepep_v1, deepseek-ai/DeepEP csrc/legacy (buffer.hpp, internode_ll.cu).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/moe_shape.h"

namespace switchyard {

enum class DeviceKind : std::uint8_t { kCpu = 0, kCuda = 1, kAscend = 2 };
absl::string_view DeviceKindName(DeviceKind kind);  // "cpu", "cuda", "ascend"
bool DeviceKindFromName(absl::string_view name, DeviceKind* kind);

struct DeviceProfile {
  const char* name;
  DeviceKind kind;
  std::int32_t max_top_k;            // of a low_latency layer
  std::int32_t max_tokens_per_step;  // upper bound of M; 0: none
  bool experts_divide_by_ranks;      // E % R == 0 is required
};

std::span<const DeviceProfile> DeviceProfiles();
const DeviceProfile* FindDeviceProfile(absl::string_view name);  // nullptr: no such row

// What a plan asks of a profile.
struct ProfileDemand {
  MoeShape shape;
  std::int32_t ranks = 0;
  std::int32_t max_tokens_per_step = 0;  // M
};
// Errors: kInvalidArgument, BAD_TOP_K or BAD_CONFIG, naming profile, limit and demand (R45, R62).
absl::Status CheckLimits(const DeviceProfile& profile, const ProfileDemand& demand);

}  // namespace switchyard
