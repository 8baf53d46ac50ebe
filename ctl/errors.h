// What syctl says when something went wrong, and what to do next. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/json.h"

namespace switchyard::ctl {

// The command that helps with errors of `status`'s reason; "" when its text says it all.
std::string NextStep(const absl::Status& status);

// For people: the text, code, reason and ids a line each, then the next step.
std::string ErrorText(const absl::Status& status);

// {"error": {"code", "reason", "message", "metadata", "next"}}
Json ErrorObject(const absl::Status& status);

}  // namespace switchyard::ctl
