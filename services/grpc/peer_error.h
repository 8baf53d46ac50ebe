// Translates errors that gRPC itself created: adds the peer and the reason.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/base/error.h"

namespace switchyard {

// The process at the other end of a channel.
struct Peer {
  std::string role;  // "coordinator", "worker"
  std::string endpoint;
  Reason lost = Reason::kUnspecified;  // the reason to report if it cannot be reached
};

// Returns `status` unchanged if it has a reason, because then the peer itself created it.
// Otherwise: kUnavailable with `peer.lost` if the peer cannot be reached, went away or did not
// answer in time; kUnimplemented (UNSUPPORTED) if it does not know the call; else the same code
// with reason TRANSPORT.
absl::Status AsPeerError(const absl::Status& status, const Peer& peer);

}  // namespace switchyard
