// Whether a worker's Register can be used at all, whoever the members are. Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/control_messages.h"

namespace switchyard {

// The name is Membership's to check. Errors: BadRegister naming the field.
absl::Status CheckRegister(const Register& request);

// kInvalidArgument (BAD_REQUEST). `what` follows the field's name.
absl::Status BadRegister(const Register& request, absl::string_view field, absl::string_view what);

}  // namespace switchyard
