// syctl config, and what contexts mean to the other commands.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "ctl/run.h"
#include "ctl/syctl.h"

namespace switchyard::ctl {

// Reads or changes the file at `run.line.contexts_path`. Errors: those of ReadContexts and
// WriteContexts; kNotFound (BAD_REQUEST) for an unknown context; kInvalidArgument (BAD_REQUEST) for
// a new one without --target.
absl::Status Config(const Run& run, std::string* out);

// Sets target and deployment of a command: --target, else --context, else SYCTL_TARGET, else the
// current context; the defaults where there is none of them. A context counts as a whole or not at
// all. Errors: those of ReadContexts; kNotFound (BAD_REQUEST) for an unknown context;
// kInvalidArgument (BAD_REQUEST) for a SYCTL_TARGET that is not "host:port".
absl::Status UseContext(const Environment& environment, CommandLine* line);

}  // namespace switchyard::ctl
