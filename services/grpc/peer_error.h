// Errors that gRPC itself made, in our words: who cannot be reached, and what it means.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/base/error.h"

namespace switchyard {

// The process at the other end of a channel.
struct Peer {
  std::string role;  // "coordinator", "worker"
  std::string endpoint;
  Reason lost = Reason::kUnspecified;  // what it means that it is gone
};

// `status` as it is when it carries a reason: the peer itself has spoken. Otherwise kUnavailable
// with `peer.lost` when the peer cannot be reached, went away or did not answer in time;
// kUnimplemented (UNSUPPORTED) when it does not know the call; else the code with TRANSPORT.
absl::Status AsPeerError(const absl::Status& status, const Peer& peer);

}  // namespace switchyard
