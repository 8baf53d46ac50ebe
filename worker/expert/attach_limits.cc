#include "worker/expert/attach_limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/wire_format.h"
#include "worker/expert/attach_grant.h"
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

absl::Status CheckOfUse(absl::string_view of, std::uint32_t bytes, std::size_t most,
                        const AttachRequest& request) {
  if (bytes <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
                   absl::StrFormat("%s ring: slots have %d bytes; session %s, granted for steps of "
                                   "%d tokens, has no use for more than %d: ask for smaller slots, "
                                   "or open a session for more tokens",
                                   of, bytes, ToHex(request.session), request.max_tokens, most),
                   {{"session", ToHex(request.session)}});
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

absl::Status CheckRingsOfGrant(const AttachRequest& request, const MoeShape& shape) {
  const std::uint32_t rows = GrantedRowsMax(request, shape);
  std::size_t chunk = kSlotBytesMin;
  // The next epoch may choose any format, and a plan may move any of the model's experts here.
  for (const NamedWireFormat& named : WireFormats()) {
    chunk = std::max(chunk, LayoutOfRequest({.mode = request.mode,
                                             .format = named.format,
                                             .rows = rows,
                                             .hidden = shape.hidden,
                                             .top_k = shape.top_k,
                                             .local_slots = shape.experts})
                                .frame_bytes);
  }
  const std::size_t answer =
      std::max<std::size_t>(kSlotBytesMin, LayoutOfResult(rows, shape.hidden).frame_bytes);
  SY_RETURN_IF_ERROR(CheckOfUse("reply", request.reply_ring.slot_bytes, answer, request));
  return CheckOfUse("request", request.request_slot_bytes_or_reply(), chunk, request);
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
