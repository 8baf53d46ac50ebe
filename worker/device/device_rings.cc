#include "worker/device/device_rings.h"

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<std::shared_ptr<DeviceRings>> DeviceRings::Make(DeviceBackend* device,
                                                               std::size_t ring_bytes) {
  SY_ASSIGN_OR_RETURN(SharedBuffer inbound, device->AllocateShared(ring_bytes));
  return std::shared_ptr<DeviceRings>(new DeviceRings(std::move(inbound)));
}

void DeviceRings::Offer(RingOffer* offer) {
  SY_CHECK(offer->ring_bytes <= inbound_.buffer->bytes(), "device memory for a smaller ring");
  slot_bytes_ = offer->slot_bytes;
  offer->device_memory = inbound_.key;
}

absl::Status DeviceRings::Meet(DeviceBackend* device, const RingOffer& peer) {
  if (peer.device_memory.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     "the peer offers no memory of a device");
  }
  // The transport checks the ring's own sizes, but perhaps later.
  const std::uint64_t bytes = std::uint64_t{peer.slots} * peer.slot_bytes;
  SY_ASSIGN_OR_RETURN(outbound_, device->OpenShared(peer.device_memory, bytes));
  peer_slot_bytes_ = peer.slot_bytes;
  return absl::OkStatus();
}

}  // namespace switchyard
