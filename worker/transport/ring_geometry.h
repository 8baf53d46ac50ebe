// The checks that every transport makes of ring sizes: its own and those of a peer's offer.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/session_messages.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Rounds slot_bytes up to kFrameAlign. Errors: kInvalidArgument (BAD_CONFIG) without slots, with
// more than a header can name, or with a slot smaller than a header or larger than 1 GiB.
absl::Status RoundRing(LinkOptions* options);

// Of a rounded ring.
std::size_t RingBytesOf(const LinkOptions& options);

// Errors: kFailedPrecondition (TRANSPORT) when `peer` is another transport's, or not a ring of as
// many slots as the own one (slots are pairs).
absl::Status CheckPeerOffer(const LinkOptions& own, const RingOffer& peer,
                            absl::string_view transport);

// kInternal: a slot or size that the peer's ring does not have.
absl::Status BadSend(AttachmentId attachment, std::uint32_t slot, std::size_t frame_bytes);

}  // namespace switchyard
