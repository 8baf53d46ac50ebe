// syctl diff: what applying a file would change.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

#include "core/dispatch_config.h"
#include "ctl/json.h"
#include "ctl/run.h"
#include "ctl/syctl.h"

namespace switchyard::ctl {

// A deployment as it is, or as it would be. Both parts are empty for one that does not exist.
struct DiffSide {
  // With every default filled in, the coordinator's defaults, and "weights", the manifest's hash.
  Json spec = Json::object();
  std::vector<DispatchConfig> configs;
};
struct Difference {
  std::string key;
  std::string from;  // empty: it is not there
  std::string to;
  friend bool operator==(const Difference&, const Difference&) = default;
};
// "phases[decode].mode", from "normal" to "low_latency"; then what changes of how rows travel:
// "layers 0-3, decode, cpu -> cpu", from "normal fp8" to "". Configs count only where both sides
// have some. Pure.
std::vector<Difference> Compare(const DiffSide& from, const DiffSide& to);
// "- key: from" and "+ key: to", each on a line. Pure.
std::string DifferencesText(const std::vector<Difference>& differences);

// Changes nothing, but the coordinator reads the checkpoint, as for a dry run. Sets the exit code
// to 1 if there are differences. Errors: those of CoordinatorClient and of ReadDeployments; why a
// deployment of the file would be refused.
absl::Status Diff(const Run& run, SyctlResult* result);

}  // namespace switchyard::ctl
