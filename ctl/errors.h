// The error output of syctl: the error and the next thing to try. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "ctl/json.h"

namespace switchyard::ctl {

// The next thing to try after an error, by its reason; "" if the error text is sufficient.
std::string NextStep(const absl::Status& status);

// kNotFound (BAD_REQUEST): "unknown worker w7; known: w0, w1". It lists the known names, because a
// wrong name is mostly a typo.
absl::Status NoSuch(const std::string& kind, const std::string& name,
                    const std::vector<std::string>& known);

// For people: the text, then code, reason and ids on one line each, then the next step.
std::string ErrorText(const absl::Status& status);

// {"error": {"code", "reason", "message", "metadata", "next"}}
Json ErrorObject(const absl::Status& status);

}  // namespace switchyard::ctl
