// syctl get.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/run.h"

namespace switchyard::ctl {

// Lists objects, or one of them; with --watch again and again, through the viewer. Errors: those of
// CoordinatorClient; kNotFound (BAD_REQUEST) for an unknown name, with the known ones.
absl::Status Get(const Run& run, std::string* out);

}  // namespace switchyard::ctl
