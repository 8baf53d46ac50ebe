// Inbox: the handling of inbound frames that all transports share.
//
//   bytes -> guards -> payload landed in its slot -> queue -> sink
//
// The guards check, in this order: complete header, magic, version, enums; attachment number;
// cookie; both slots; length. A frame that fails one is dropped and counted, never answered: an
// answer to a forged frame would help an attacker and could start a loop. Frames that pass wait in
// a queue until Deliver, so that a sink is never called from inside a vendor's callback and may
// close or destroy any link, including its own. A slot is in the queue at most once: a second frame
// for it before the first was delivered is dropped (kSlot). This bounds the queue by the number of
// slots.
//
// Only Add and Remove allocate. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "core/ids.h"
#include "worker/transport/frame.h"
#include "worker/transport/transport.h"

namespace switchyard {

// Size of the pieces in which a frame travels when the ring is not mapped. The pieces arrive in
// order; only the last one may be shorter. A wire constant: both sides must agree.
inline constexpr std::size_t kPieceBytes = 120 * 1024;

// A greeting tells a peer that it may connect to the sender: attachment u32, as the receiver
// numbers it, zero u32, cookie u64, little-endian.
inline constexpr std::size_t kGreetingBytes = 16;
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
GreetingBytes EncodeGreeting(AttachmentId attachment, Cookie cookie);

class Inbox {
 public:
  // A link's inbound ring.
  struct Ring {
    Cookie cookie;  // frames with another cookie are dropped
    std::uint32_t slots = 0;
    std::uint32_t slot_bytes = 0;
    std::span<std::byte> memory;  // slots x slot_bytes
    bool mapped = false;          // the peer writes payloads itself and sends only doorbells
  };

  // Returns the attachment number that frames to this ring must carry. It is not in use by another
  // ring of this inbox.
  AttachmentId Add(Link* link, const Ring& ring);
  // Removes the ring with its queued and incomplete frames. Later frames for it are dropped.
  void Remove(AttachmentId attachment);

  // Handles a frame without payload, or one that the peer has already written into the slot, header
  // and all.
  void OnDoorbell(std::span<const std::byte> header);
  // Handles a frame that lies complete in `slot` of a mapped ring, header and all. `slot` comes
  // from the peer and may be any number; the header has to name the same ring and slot.
  void OnRung(AttachmentId attachment, std::uint32_t slot);
  // Copies one piece of a frame's payload into the slot at `offset`.
  void OnPiece(std::span<const std::byte> header, std::uint32_t offset,
               std::span<const std::byte> piece);

  // The link that a greeting is for; null, and a drop is counted, if there is none.
  Link* OnGreeting(std::span<const std::byte> greeting);

  [[nodiscard]] bool HasReady() const { return ready_head_ != nullptr; }
  // Passes all queued frames to `sink`. True if there was at least one.
  bool Deliver(FrameSink& sink);

  void CountDrop(FrameDrop drop) { ++drops_[static_cast<std::size_t>(drop)]; }
  [[nodiscard]] const std::array<std::uint64_t, kFrameDropCount>& drops() const { return drops_; }
  [[nodiscard]] std::uint64_t frames_in() const { return frames_in_; }

 private:
  struct Entry;
  // The state of one inbound slot.
  struct Slot {
    Entry* entry = nullptr;
    std::uint32_t index = 0;
    bool ready = false;
    bool landing = false;  // some but not all pieces of the payload have arrived
    std::uint32_t landed_bytes = 0;
    HeaderBytes raw{};
    FrameHeader header;
    Slot* next_ready = nullptr;
  };
  struct Entry {
    Link* link = nullptr;
    Ring ring;
    std::vector<Slot> slots;
  };

  // Runs the guards. Sets `*slot` only if it returns kNone.
  FrameDrop Admit(std::span<const std::byte> bytes, FrameHeader* header, Slot** slot);
  // Checks and copies one piece; a complete frame becomes ready.
  FrameDrop Land(std::span<const std::byte> bytes, std::uint32_t offset,
                 std::span<const std::byte> piece);
  // Marks a complete frame as ready and appends it to the queue.
  void MakeReady(Slot* slot, std::span<const std::byte> bytes, const FrameHeader& header);
  static std::span<const std::byte> HeaderIn(const Slot& slot);
  static std::span<std::byte> PayloadOf(const Slot& slot, std::uint32_t bytes);

  absl::flat_hash_map<AttachmentId, std::unique_ptr<Entry>> entries_;
  std::uint32_t last_attachment_ = 0;
  Slot* ready_head_ = nullptr;
  Slot* ready_tail_ = nullptr;
  std::array<std::uint64_t, kFrameDropCount> drops_{};
  std::uint64_t frames_in_ = 0;
};

}  // namespace switchyard
