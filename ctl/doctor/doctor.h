// syctl doctor: a checkup of the machine or Pod on which it runs, and of the way from there to the
// coordinator and its workers. Changes nothing, and prints no key and no cookie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/cli/cli11.h"
#include "ctl/doctor/check.h"
#include "ctl/doctor/service_probe.h"

namespace switchyard::ctl {

struct DoctorOptions {
  bool node_only = false;  // only checks that need no network
  std::int64_t shm_bytes = 0;
  bool rdma = false;
  std::vector<std::string> checkpoints;
  std::vector<std::string> ring_dirs;
};

// Makes all checks within `all`, and not much longer. `calls` may be without security only if
// `tls_dir` is empty or its certificate cannot be used. Never fails: what is wrong is a line.
std::vector<Check> Examine(const DoctorOptions& options, const std::string& tls_dir,
                           const ServiceCalls& calls, Duration all);

// Adds the verb to syctl's command line. `options` outlives `app`.
void AddDoctorVerb(CLI::App& app, DoctorOptions* options);

}  // namespace switchyard::ctl
