#include "worker/expert/attach_limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/expert/request_intake.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

// The smallest slot holds a header and an error with the longest text: a worker must be able to
// refuse whatever the slot size.
const auto kSlotBytesMin = static_cast<std::uint32_t>(LayoutOfError(kErrorTextMax).frame_bytes);

absl::Status BadRing(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrCat("reply ring: ", what));
}

absl::Status CheckSlotBytes(absl::string_view of, std::uint32_t bytes, std::uint32_t most) {
  if (bytes >= kSlotBytesMin && bytes <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
                   absl::StrFormat("%s ring: slots have %d bytes; %d to %d are allowed", of, bytes,
                                   kSlotBytesMin, most));
}

}  // namespace

absl::Status CheckRings(const AttachRequest& request, const RingLimits& limits) {
  const RingOffer& ring = request.reply_ring;
  // Both rings are checked: the source names the sizes of its own and of the one that this worker
  // makes for it, and either could be made to take all memory.
  if (ring.incarnation.empty()) return BadRing(Reason::kBadRequest, "incarnation is missing");
  if (ring.slots == 0 || ring.slots > limits.slots_max) {
    return BadRing(Reason::kBadRequest,
                   absl::StrFormat("%d slots; 1 to %d are allowed", ring.slots, limits.slots_max));
  }
  SY_RETURN_IF_ERROR(CheckSlotBytes("reply", ring.slot_bytes, limits.slot_bytes_max));
  return CheckSlotBytes("request", request.request_slot_bytes_or_reply(), limits.slot_bytes_max);
}

absl::Status CheckRowsToCopy(const AttachRequest& request, const MoeShape& shape,
                             std::uint32_t rows_max) {
  // The answer to a request has a header before its rows. Slots smaller than that were refused, but
  // this function does not rely on the order of the checks.
  const std::size_t bytes = std::max<std::size_t>(request.reply_ring.slot_bytes, kFrameHeaderBytes);
  const std::size_t rows = RequestRowsMax(bytes - kFrameHeaderBytes, shape);
  if (rows <= rows_max) return absl::OkStatus();
  return BadRing(Reason::kMessageTooLarge,
                 absl::StrFormat("slots of %d bytes hold up to %d rows, but this worker copies at "
                                 "most %d to its device at once; use smaller slots",
                                 request.reply_ring.slot_bytes, rows, rows_max));
}

}  // namespace switchyard
