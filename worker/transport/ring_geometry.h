// Checks of ring sizes that all transports share, for their own rings and for a peer's offer.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/session_messages.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Rounds slot_bytes up to a multiple of kFrameAlign. Errors: kInvalidArgument (BAD_CONFIG) if there
// are no slots, more slots than a header can address, or slots smaller than a header or larger than
// 1 GiB.
absl::Status RoundRing(LinkOptions* options);

// The size of a ring in bytes. REQUIRES: RoundRing has accepted `options`.
std::size_t RingBytesOf(const LinkOptions& options);

// Errors: kFailedPrecondition (TRANSPORT) if `peer` is from another transport or sends frames of
// another version, if its ring does not have as many slots as our own (slot i of both rings belongs
// to credit i), or if its slots are larger than the link's options allow.
absl::Status CheckPeerOffer(const LinkOptions& own, const RingOffer& peer,
                            absl::string_view transport);

// The error (kInternal) for a send to a slot or of a size that the peer's ring does not have.
absl::Status BadSend(AttachmentId attachment, std::uint32_t slot, std::size_t frame_bytes);

}  // namespace switchyard
