// syctl apply.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/run.h"

namespace switchyard::ctl {

// Applies the deployments of a file in order, until one is refused. Errors: those of
// CoordinatorClient, of ReadDeployments and of ctl/waiting.h; the refusal.
absl::Status Apply(const Run& run, std::string* out);

}  // namespace switchyard::ctl
