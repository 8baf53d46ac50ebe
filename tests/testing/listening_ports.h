// The tcp ports on which a process of this machine listens.
#pragma once

#include <cstdint>
#include <set>
#include <sys/types.h>

namespace switchyard::testing {

// Those of IPv4: on the loopback interface that is UCX's, and gRPC's of an address of it.
std::set<std::uint16_t> PortsOf(pid_t process);

}  // namespace switchyard::testing
