// The first thing that is read of a peer's first message: whether both speak one protocol. Pure;
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// `peer` is the number that the peer sent, `who` what it is: "worker". Errors: kFailedPrecondition
// (TRANSPORT) naming both versions, unless it is kProtocolVersion.
absl::Status CheckProtocolVersion(absl::string_view who, std::uint32_t peer);

}  // namespace switchyard
