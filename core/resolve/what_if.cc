#include "core/resolve/what_if.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace switchyard {
namespace {

constexpr char kLibraryProfile[] = "deepep_v1";

constexpr std::array kDtypes{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                             DispatchDtype::kNvfp4};

struct KindWord {
  const char* word;
  DeviceKind kind;
};
constexpr KindWord kKindWords[] = {{"cpu", DeviceKind::kCpu},
                                   {"cuda", DeviceKind::kCuda},
                                   {"gpu", DeviceKind::kCuda},
                                   {"ascend", DeviceKind::kAscend},
                                   {"npu", DeviceKind::kAscend}};

// The profiles of devices of `kind`; of all kinds when there is none. A library's limits are not a
// device, so deepep_v1 is left out.
std::vector<const DeviceProfile*> ProfilesOf(std::optional<DeviceKind> kind) {
  std::vector<const DeviceProfile*> profiles;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const bool device = absl::string_view(profile.name) != kLibraryProfile;
    if (device && (!kind || profile.kind == *kind)) profiles.push_back(&profile);
  }
  return profiles;
}

absl::Status NoSuchKind(absl::string_view word) {
  std::vector<std::string> known;
  for (const KindWord& row : kKindWords) known.emplace_back(row.word);
  for (const DeviceProfile& profile : DeviceProfiles()) {
    if (profile.kind != DeviceKind::kCpu) known.emplace_back(profile.name);  // kKindWords has "cpu"
  }
  const std::string near = NearestWord(word, known);
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("\"", word, "\" is not a kind of worker",
                                near.empty() ? absl::StrCat("; one of ", absl::StrJoin(known, ", "))
                                             : absl::StrCat("; did you mean \"", near, "\"?")),
                   {{"kind", std::string(word)}});
}

}  // namespace

// Only native dtypes: one that the device replaces by another is never proven under its own name.
CapabilitySet FullCapabilities(const DeviceProfile& profile) {
  CapabilitySet all;
  all.device = profile.kind;
  all.device_profile = profile.name;
  // No kernel family is known for a worker that does not exist; the profile's name marks it as
  // assumed.
  all.kernel_family = profile.name;
  all.max_top_k = profile.max_top_k;
  for (const DispatchDtype dtype : kDtypes) {
    if (profile.Wire(dtype).support == WireSupport::kNative) all.wire_dtypes.push_back(dtype);
  }
  for (const QuantSchemeInfo& scheme : AllQuantSchemes()) all.schemes.push_back(scheme.scheme);
  return all;
}

absl::StatusOr<std::vector<const DeviceProfile*>> ProfilesNamed(absl::string_view word) {
  if (word.empty()) return ProfilesOf(std::nullopt);
  for (const KindWord& row : kKindWords) {
    if (word == row.word) return ProfilesOf(row.kind);
  }
  if (const DeviceProfile* profile = FindDeviceProfile(word); profile != nullptr) {
    return std::vector<const DeviceProfile*>{profile};
  }
  return NoSuchKind(word);
}

}  // namespace switchyard
