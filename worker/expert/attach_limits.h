// The limits on the rings that a source may ask for, of one request by itself. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/moe_shape.h"
#include "core/session_messages.h"

namespace switchyard {

// The operator's bounds on one attachment. What all attachments together may take is bounded by
// ExpertEngineOptions::attachment_bytes_max.
struct RingLimits {
  std::uint32_t slots_max = 0;       // of one attachment
  std::uint32_t slot_bytes_max = 0;  // of a slot, in either direction
};

// Errors, kInvalidArgument: BAD_REQUEST without an incarnation or for a number of slots beyond the
// limits, MESSAGE_TOO_LARGE for slots too large, or too small for the longest refusal.
absl::Status CheckRings(const AttachRequest& request, const RingLimits& limits);

// Refuses slots that the session has no use for: larger than the longest chunk that its grant
// allows on layers of `shape`, its answer, and an error. `request` shows its grant. Errors:
// kInvalidArgument (MESSAGE_TOO_LARGE).
absl::Status CheckRingsOfGrant(const AttachRequest& request, const MoeShape& shape);

// Refuses at attach what could never be copied: a device without host access has room for
// `rows_max` rows of one request. Errors: kInvalidArgument (MESSAGE_TOO_LARGE).
absl::Status CheckRowsToCopy(const AttachRequest& request, const MoeShape& shape,
                             std::uint32_t rows_max);

}  // namespace switchyard
