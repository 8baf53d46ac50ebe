// Workers that have not joined: what core/resolve/dispatch_resolver.h would decide for a kind of
// device.
//
// A profile proves nothing about a worker (core/device_profile.h). An answer for such a worker is a
// hypothesis, and every display of it says so: kFullCapabilitiesText. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/capability.h"
#include "core/device_profile.h"

namespace switchyard {

// For people, beside every answer.
inline constexpr char kFullCapabilitiesText[] =
    "for one worker that has proven everything its kind can do: every weight scheme, and every "
    "wire dtype "
    "that its profile has";

// Everything that a worker of `profile` could prove: the wire dtypes that are native to it, every
// scheme (a profile does not limit them), its limit on top-k. It has no transports, and its memory
// is not known.
CapabilitySet FullCapabilities(const DeviceProfile& profile);

// The profiles that `word` stands for, in the order of their table: the name of one ("ascend_a2"),
// a kind ("cpu", "cuda", "ascend"), or what people call one ("gpu", "npu"). Empty: all kinds. Kinds
// leave out deepep_v1, which is a library's limits and no device's; its name gives it. Errors:
// kInvalidArgument (BAD_REQUEST) for any other word, with the nearest.
absl::StatusOr<std::vector<const DeviceProfile*>> ProfilesNamed(absl::string_view word);

}  // namespace switchyard
