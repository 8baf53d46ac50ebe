// The verbs of syctl: a few calls to the coordinator, and their answers as text.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

#include "ctl/command_line.h"
#include "ctl/coordinator_client.h"

namespace switchyard::ctl {

struct Screen {
  OutputFormat format = OutputFormat::kTable;
  std::size_t width = 0;  // in characters; 0: no bound
};

// Appends to `out` what is to be printed, also before an error: deployments of a file that were
// applied before one was refused stay applied, and `out` lists them. Errors: those of
// CoordinatorClient, of ReadDeployments, of Inspect and Verdict (ctl/inspection.h); kNotFound
// (BAD_REQUEST) for a worker or model that the coordinator does not know, naming those that it
// does.
absl::Status RunCommand(const CommandLine& line, CoordinatorClient& coordinator,
                        const Screen& screen, std::string* out);

}  // namespace switchyard::ctl
