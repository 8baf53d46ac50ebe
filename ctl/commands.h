// The verbs of syctl. Each makes a few calls to the coordinator and formats the responses.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

#include "ctl/command_line.h"
#include "ctl/coordinator_client.h"
#include "ctl/syctl.h"

namespace switchyard::ctl {

// The output's format and size, and who looks on.
struct Screen {
  OutputFormat format = OutputFormat::kTable;  // or kJson, from which ctl/output.h makes others
  std::size_t width = 0;                       // in characters; 0: no limit
  Viewer viewer = {};
  bool wide = false;  // tables with all columns
};

// Runs one command and appends its output to `result->out`, even if it returns an error:
// deployments of a file that were applied before one was refused stay applied, and it lists them.
// Sets `result->exit_code` where a success has several. Errors: those of CoordinatorClient, of
// ReadDeployments, of Inspect and CheckServable (ctl/inspection.h); kNotFound (BAD_REQUEST) for an
// unknown worker or model, with the known names.
absl::Status RunCommand(const CommandLine& line, CoordinatorClient& coordinator,
                        const Screen& screen, SyctlResult* result);

}  // namespace switchyard::ctl
