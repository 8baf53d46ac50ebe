// Two pieces of device memory that belong to a link, beside its two rings in memory of the host: in
// ours the peer's rows land, in the peer's we write. Each has the geometry of its ring, and the
// rows of a frame with the flag kRowsOnDevice stand, with their scales, where they would stand in
// the ring. Header and metadata stay in the ring.
//
//   Make -> Offer(&ring offer) ... the peer's offer -> Meet -> inbound(slot), outbound(slot)
//
// Both devices write only memory that the other side has given out for this link, and read only
// their own. Each function is called by one thread at a time; Make, Meet and the destructor take
// milliseconds. An object may outlive its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class DeviceRings {
 public:
  // Memory for a ring of so many bytes. Errors: those of AllocateShared.
  static absl::StatusOr<std::shared_ptr<DeviceRings>> Make(DeviceBackend* device,
                                                           std::size_t ring_bytes);

  // Adds our memory to the offer of the ring that it is for. REQUIRES: of at most ring_bytes.
  void Offer(RingOffer* offer);
  // Opens the peer's memory, on the device of Make. Errors: kFailedPrecondition (TRANSPORT) if the
  // offer names none; those of OpenShared. After an error rows travel through the rings, as they do
  // before.
  absl::Status Meet(DeviceBackend* device, const RingOffer& peer);
  // Meet has succeeded.
  [[nodiscard]] bool met() const { return outbound_ != nullptr; }

  // Memory of a whole slot, which only streams of the device may touch. REQUIRES: a slot of the
  // ring; of outbound, met().
  [[nodiscard]] std::byte* inbound(std::uint32_t slot) const {
    return inbound_.buffer->data() + std::size_t{slot} * slot_bytes_;
  }
  [[nodiscard]] std::byte* outbound(std::uint32_t slot) const {
    return outbound_->data() + std::size_t{slot} * peer_slot_bytes_;
  }

 private:
  explicit DeviceRings(SharedBuffer inbound) : inbound_(std::move(inbound)) {}

  const SharedBuffer inbound_;
  std::uint32_t slot_bytes_ = 0;  // of the rings, as their offers say
  std::uint32_t peer_slot_bytes_ = 0;
  std::unique_ptr<Buffer> outbound_;
};

}  // namespace switchyard
