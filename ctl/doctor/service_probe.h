// Asks name servers, the coordinator and its workers for 'syctl doctor'. Changes nothing.
// Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

#include "ctl/doctor/facts.h"
#include "ctl/doctor/within.h"
#include "ctl/run.h"

namespace switchyard::ctl {

// Most workers whose ports are asked, and most hosts of workers that are looked up.
inline constexpr std::size_t kWorkersAskedMax = 64;

// Begins no step once `budget` is over. A name takes 2 s at most, a call to the coordinator the
// run's timeout, 16 workers at once 2 s.
ServiceFacts ProbeService(const Run& run, const Budget& budget);

// Looks a host up; an address is itself.
NameFacts ProbeName(const std::string& host, Duration most);
// The host of "host:port" and of "[address]:port".
std::string HostOf(absl::string_view endpoint);

}  // namespace switchyard::ctl
