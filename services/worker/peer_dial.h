// Connects to another worker as a source would, for the coordinator, which may reach what peers do
// not: a firewall, or an address that only means something on its own host, lies between two hosts.
#pragma once

#include <cstddef>
#include <memory>

#include "services/security/transport_security.h"
#include "switchyard/v1/expert.pb.h"

namespace switchyard {

// A worker dials so many others at once. Each dial takes a thread for at most three seconds.
inline constexpr std::size_t kPeerDialsMax = 4;

// Blocks for at most three seconds. Must not run on a thread of gRPC.
v1::PeerReach DialPeer(const v1::DialPeerRequest& request,
                       const std::shared_ptr<const TransportSecurity>& security = {});

}  // namespace switchyard
