#include "coordinator/members/register_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/name.h"
#include "core/device_profile.h"

namespace switchyard {
namespace {

// Bounds on what a worker can make the coordinator remember. A worker holds at most two epochs of
// each deployment, so that kResidentMax is far above any honest report.
constexpr std::size_t kResidentMax = 256;
constexpr std::size_t kEndpointMax = 512;
// Far above kHeldEpochMax (coordinator/members/held_epochs.h), so that plans above that can still
// be reported.
constexpr std::uint64_t kEpochMax = std::uint64_t{1} << 62;
constexpr std::size_t kShownMax = 128;

// A line of the log and of bounded length, whatever a stranger sent.
std::string Shown(absl::string_view text) { return absl::CHexEscape(text.substr(0, kShownMax)); }

}  // namespace

absl::Status CheckRegister(const Register& request) {
  // The incarnation distinguishes the processes that use one id (I8); without it an answer of a
  // dead process could count for its successor.
  if (request.incarnation.empty()) return BadRegister(request, "incarnation", "is empty");
  // Sources dial it as it is; it is part of the plan and of its hash.
  if (request.endpoint.empty() || request.endpoint.size() > kEndpointMax) {
    return BadRegister(request, "endpoint", "must be \"host:port\"");
  }
  if (!request.pool.empty() && !IsName(request.pool)) {
    return BadRegister(request, "pool", "must be 1 to 128 characters of [A-Za-z0-9._-]");
  }
  // People see it.
  if (!request.release.empty() && !IsName(request.release)) {
    return BadRegister(request, "release", "must be 1 to 128 characters of [A-Za-z0-9._-]");
  }
  const DeviceProfile* profile = FindDeviceProfile(request.capabilities.device_profile);
  // Plans take limits from the profile, so that an unknown one cannot be planned for.
  if (profile == nullptr || profile->kind != request.capabilities.device) {
    return BadRegister(request, "capabilities.device_profile",
                       absl::StrCat("\"", Shown(request.capabilities.device_profile),
                                    "\" is not a profile of its device kind"));
  }
  // More than any worker can hold: the list is wrong, and every entry would become a message.
  if (request.resident.size() > kResidentMax) {
    return BadRegister(request, "resident", "names too many epochs");
  }
  const auto too_many = [](const DeploymentKeys& of) { return of.keys.size() > kGrantKeysMax; };
  if (request.grant_keys.size() > kResidentMax ||
      std::any_of(request.grant_keys.begin(), request.grant_keys.end(), too_many)) {
    return BadRegister(request, "grant_keys", "names too many keys");
  }
  // The next plan gets a number above those up to kHeldEpochMax.
  for (const ResidentEpoch& held : request.resident) {
    if (held.epoch.value <= kEpochMax) continue;
    return BadRegister(request, "resident", "names an epoch that no coordinator has reached");
  }
  return absl::OkStatus();
}

absl::Status BadRegister(const Register& request, absl::string_view field, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrFormat("worker \"%s\": %s %s", Shown(request.worker_id), field, what),
                   {{"worker", Shown(request.worker_id)}, {"field", std::string(field)}});
}

}  // namespace switchyard
