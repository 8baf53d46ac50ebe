// The limits of a kind of device or of an EP library, and how it treats each wire dtype. Plans are
// checked against these rows.
//
// Sources: cpu, ours; deepep_v1, deepseek-ai/DeepEP csrc/legacy (buffer.hpp, internode_ll.cu);
// cuda_sm90 and cuda_sm100, DeepGEMM's README (scales) and SGLang PR 22822 (dtypes); ascend_*,
// sgl-kernel-npu's documents and the same PR. A profile proves nothing about a worker: what the
// worker proved is in its CapabilitySet, and both must agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/format/dtype.h"
#include "core/format/wire_format.h"
#include "core/moe_shape.h"

namespace switchyard {

// Wire values, and bits of WireRule::kinds: append only.
enum class DeviceKind : std::uint8_t { kCpu = 0, kCuda = 1, kAscend = 2 };
inline constexpr DeviceKind kLastDeviceKind = DeviceKind::kAscend;
inline constexpr std::size_t kDeviceKinds = static_cast<std::size_t>(kLastDeviceKind) + 1;
absl::string_view DeviceKindName(DeviceKind kind);  // "cpu", "cuda", "ascend"
// False, with `kind` unchanged, for any other name.
bool DeviceKindFromName(absl::string_view name, DeviceKind* kind);

// How a device treats rows in a wire dtype.
enum class WireSupport : std::uint8_t {
  kNative = 0,
  kInstead = 1,  // takes another dtype instead; the plan must say so
  kAbsent = 2,   // cannot; BF16 is sent unless the dtype was requested
  kRefused = 3,  // cannot, and a deployment that resolves to it is refused
};
// The treatment of one dtype.
struct WireRow {
  WireSupport support = WireSupport::kNative;
  DispatchDtype instead = DispatchDtype::kBf16;  // of kInstead
};

// One row of the table. Rows are constant data; pointers to them stay valid.
struct DeviceProfile {
  const char* name = nullptr;
  DeviceKind kind = {};
  std::int32_t max_top_k = 0;            // of a low_latency layer
  std::int32_t max_tokens_per_step = 0;  // upper bound of M; 0: none
  bool experts_divide_by_ranks = false;  // E % R == 0 is required
  const char* title = nullptr;           // for people, e.g. "Ascend A2 NPU"
  std::array<WireRow, 4> wire = {};      // by DispatchDtype
  ScaleKind fp8_scales = {};             // of FP8 rows
  // Most ranks whose normal mode carries quantized rows; 0: no bound. Above it rows go as BF16.
  std::int32_t quantized_normal_ranks_max = 0;

  // The treatment of `dtype`.
  [[nodiscard]] const WireRow& Wire(DispatchDtype dtype) const {
    return wire[static_cast<std::size_t>(dtype)];
  }
};

// All rows, in the order in which tables print them.
std::span<const DeviceProfile> DeviceProfiles();
const DeviceProfile* FindDeviceProfile(absl::string_view name);  // nullptr: no such row

// The demands of a plan on a profile: the layer's sizes, the ranks R that share it, and M.
struct ProfileDemand {
  MoeShape shape;
  std::int32_t ranks = 0;
  std::int32_t max_tokens_per_step = 0;  // M
};
// Errors: kInvalidArgument, BAD_TOP_K or BAD_CONFIG, naming profile, limit and demand (R45, R62).
absl::Status CheckLimits(const DeviceProfile& profile, const ProfileDemand& demand);

}  // namespace switchyard
