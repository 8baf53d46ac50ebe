// The verbs that change what there is, besides apply: rollback, delete, cordon, uncordon and drain;
// and wait.
//
// Each appends to `out` what it did. Errors: those of CoordinatorClient and of ctl/waiting.h.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/run.h"

namespace switchyard::ctl {

absl::Status Rollback(const Run& run, std::string* out);
absl::Status DeleteDeployment(const Run& run, std::string* out);
// Cordon, uncordon or drain.
absl::Status SetDuty(const Run& run, std::string* out);
absl::Status WaitForObject(const Run& run, std::string* out);

}  // namespace switchyard::ctl
