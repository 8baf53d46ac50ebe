#include "worker/device/device_keys.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"

namespace switchyard {

absl::StatusOr<DeviceKeys> ReadDeviceKeys(absl::string_view text) {
  DeviceKeys keys;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    // A value may be empty or hold '='; a key may not.
    const bool whole = part.find('=') != absl::string_view::npos && !pair.first.empty();
    if (!whole || !keys.insert(pair).second) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrCat("device option '", part, whole ? "' is given twice" : "' is not KEY=VALUE"));
    }
  }
  return keys;
}

}  // namespace switchyard
