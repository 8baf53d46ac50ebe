// How many CPUs this process may use.
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard {

// The CPUs of this process's affinity mask, or fewer where its control group has a quota, as that
// of a container with a CPU limit. At least 1. Reads up to three small files.
int UsableCpus();

// `cpus`, or fewer by the quota in `cpu_max`: the text of the file cpu.max of control groups,
// "200000 100000" (microseconds of CPU time, in a period) or "max 100000". Shares of a CPU count as
// one. `cpus` for any other text.
int CpusUnderQuota(int cpus, absl::string_view cpu_max);

}  // namespace switchyard
