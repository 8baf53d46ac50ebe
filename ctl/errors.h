// The error output of syctl: the error and the next thing to try. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/json.h"

namespace switchyard::ctl {

// The next thing to try after an error, by its reason; "" if the error text is sufficient.
std::string NextStep(const absl::Status& status);

// For people: the text, then code, reason and ids on one line each, then the next step.
std::string ErrorText(const absl::Status& status);

// {"error": {"code", "reason", "message", "metadata", "next"}}
Json ErrorObject(const absl::Status& status);

}  // namespace switchyard::ctl
