#include "worker/transport/ring_geometry.h"

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::uint32_t kSlotsMax = 65536;  // slot numbers are 16 bits in a header
// A sanity bound: a larger value is an error of units and would exhaust the host's memory.
constexpr std::uint32_t kSlotBytesMax = 1U << 30U;

std::uint32_t RoundedUp(std::uint32_t slot_bytes) {
  constexpr auto kAlign = static_cast<std::uint32_t>(kFrameAlign);
  return (slot_bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

absl::Status RoundRing(LinkOptions* options) {
  if (options->slots == 0 || options->slots > kSlotsMax ||
      options->slot_bytes < kFrameHeaderBytes || options->slot_bytes > kSlotBytesMax) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrCat("transport: a ring cannot have ", options->slots, " slots of ",
                     options->slot_bytes, " bytes; it needs 1 to ", kSlotsMax, " slots of ",
                     kFrameHeaderBytes, " to ", kSlotBytesMax, " bytes"));
  }
  // Rounded up here and not by the caller, so that both rings of a link have aligned slots.
  options->slot_bytes = RoundedUp(options->slot_bytes);
  return absl::OkStatus();
}

std::size_t RingBytesOf(const LinkOptions& options) {
  return static_cast<std::size_t>(options.slots) * options.slot_bytes;
}

absl::Status CheckPeerOffer(const LinkOptions& own, const RingOffer& peer,
                            absl::string_view transport) {
  if (peer.transport != transport) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kTransport,
        absl::StrCat("transport ", transport, ": the peer offers a ring of transport \"",
                     peer.transport, "\"; start both sides with the same transport"));
  }
  if (peer.frame_version != kFrameVersion) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrCat("transport ", transport, ": the peer sends frames of version ",
                                  peer.frame_version, ", this process reads version ",
                                  int{kFrameVersion}, "; run one release on both sides"));
  }
  // The offer comes from another process: a size that does not add up would let a send leave the
  // ring.
  const bool sized = peer.slot_bytes >= kFrameHeaderBytes && peer.slot_bytes <= kSlotBytesMax &&
                     peer.slot_bytes % kFrameAlign == 0 &&
                     peer.ring_bytes == std::uint64_t{peer.slots} * peer.slot_bytes;
  // A sender has memory for the peer's whole ring, so the peer must not choose how much.
  const std::uint32_t most =
      own.peer_slot_bytes_max == 0 ? kSlotBytesMax : RoundedUp(own.peer_slot_bytes_max);
  if (sized && peer.slot_bytes > most) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrCat("transport ", transport, ": the peer offers slots of ",
                                  peer.slot_bytes, " bytes, at most ", most, " are of use"));
  }
  if (!sized || peer.slots != own.slots) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrCat("transport ", transport, ": the peer offers ", peer.slots,
                                  " slots of ", peer.slot_bytes, " bytes in a ring of ",
                                  peer.ring_bytes, " bytes, but our ring has ", own.slots,
                                  " slots; both rings need the same number of slots"));
  }
  return absl::OkStatus();
}

absl::Status BadSend(AttachmentId attachment, std::uint32_t slot, std::size_t frame_bytes) {
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("attachment ", attachment.value, ": a frame of ", frame_bytes,
                                " bytes does not fit into slot ", slot,
                                " of the peer's ring; this is a bug, please report it"));
}

}  // namespace switchyard
