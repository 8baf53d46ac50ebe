// Judges for 'syctl doctor' what was learned over the network. A check that depends on one that
// failed is skipped, so that one fault gives one failure. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "ctl/doctor/check.h"
#include "ctl/doctor/facts.h"

namespace switchyard::ctl {

Check CheckName(const ServiceFacts& facts);
Check CheckCoordinator(const ServiceFacts& facts);
Check CheckClock(const ServiceFacts& facts);
Check CheckWorkers(const ServiceFacts& facts);
Check CheckVersions(const ServiceFacts& facts);
Check CheckWorkerNames(const ServiceFacts& facts);
Check CheckWorkerPorts(const ServiceFacts& facts);

// All of them, in the order of kCheckPages.
std::vector<Check> ServiceChecks(const ServiceFacts& facts);
// The same lines where nobody was asked, because of `why`; `next` makes that possible.
std::vector<Check> ServiceSkipped(const std::string& why, const std::string& next);

}  // namespace switchyard::ctl
