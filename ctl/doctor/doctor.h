// syctl doctor: a checkup of the machine or Pod on which it runs, and of the way from there to the
// coordinator and its workers. Changes nothing, and prints no key and no cookie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

#include "ctl/doctor/check.h"

namespace switchyard::ctl {

struct Run;
struct SyctlResult;

struct DoctorOptions {
  bool node_only = false;  // only checks that need no network
  std::int64_t shm_bytes = 0;
  bool rdma = false;
  std::vector<std::string> checkpoints;
  std::vector<std::string> ring_dirs;
};

// Prints all checks. The exit code is kExitFailed if one fails. Never an error: what is wrong is a
// line. Takes as long as the run may wait, and not much longer.
absl::Status Doctor(const Run& run, SyctlResult* result);

// Adds the verb to syctl's command line. `options` outlives `app`.
void AddDoctorVerb(CLI::App& app, DoctorOptions* options);

}  // namespace switchyard::ctl
