// The KEY=VALUE part of a device's spec.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

using DeviceKeys = std::map<std::string, std::string>;

// Reads "KEY=VALUE,KEY=VALUE"; empty text gives no keys. Which keys exist is the device's business.
// Errors: kInvalidArgument (BAD_CONFIG) for a part without '=', an empty key or a key given twice.
absl::StatusOr<DeviceKeys> ReadDeviceKeys(absl::string_view text);

}  // namespace switchyard
