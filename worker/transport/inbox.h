// Inbox: what every transport does with a frame that arrives.
//
//   bytes -> guards -> payload landed in its slot -> queue -> sink
//
// The guards, in this order: header whole, magic, version, enums; attachment number; cookie; both
// slots; length. What fails one is dropped and counted, never answered. Frames that pass wait in a
// queue until Deliver, so that a sink is never called from inside a vendor's callback and may close
// or destroy any link, its own too. A slot is in the queue at most once: a second frame for it
// before the first was delivered is dropped (kSlot), so the queue is as long as the rings.
//
// Add and Remove allocate, nothing else does. Not thread-safe.
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

// A frame that does not travel through mapped memory goes as pieces of its payload, in order, each
// of this size but the last. A wire constant: both sides must agree.
inline constexpr std::size_t kPieceBytes = 120 * 1024;

class Inbox {
 public:
  // A link's inbound ring.
  struct Ring {
    Cookie cookie;  // that frames must carry
    std::uint32_t slots = 0;
    std::uint32_t slot_bytes = 0;
    std::span<std::byte> memory;  // slots x slot_bytes
    bool mapped = false;          // the peer can write payloads itself, so a doorbell is enough
  };

  // The number that frames to this ring must carry; not given out again.
  AttachmentId Add(Link* link, const Ring& ring);
  // Forgets the ring, what is queued and what is half landed. Late frames for it are dropped.
  void Remove(AttachmentId attachment);

  // A frame whose payload the peer has written into the slot itself (or that has none).
  void OnDoorbell(std::span<const std::byte> header);
  // One piece of a frame's payload, to be copied into the slot at `offset`.
  void OnPiece(std::span<const std::byte> header, std::uint32_t offset,
               std::span<const std::byte> piece);

  [[nodiscard]] bool HasReady() const { return ready_head_ != nullptr; }
  // Hands all queued frames to `sink`; true if there was one.
  bool Deliver(FrameSink& sink);

  void CountDrop(FrameDrop drop) { ++drops_[static_cast<std::size_t>(drop)]; }
  [[nodiscard]] const std::array<std::uint64_t, kFrameDropCount>& drops() const { return drops_; }
  [[nodiscard]] std::uint64_t frames_in() const { return frames_in_; }

 private:
  struct Entry;
  struct Slot {
    Entry* entry = nullptr;
    std::uint32_t index = 0;
    bool ready = false;
    bool landing = false;  // some pieces of `raw`'s payload are there, not all
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

  // The guards. `*slot` is set when the answer is kNone.
  FrameDrop Admit(std::span<const std::byte> bytes, FrameHeader* header, Slot** slot);
  FrameDrop Land(std::span<const std::byte> bytes, std::uint32_t offset,
                 std::span<const std::byte> piece);
  void MakeReady(Slot* slot, std::span<const std::byte> bytes, const FrameHeader& header);
  static std::span<std::byte> PayloadOf(const Slot& slot, std::uint32_t bytes);

  absl::flat_hash_map<AttachmentId, std::unique_ptr<Entry>> entries_;
  std::uint32_t last_attachment_ = 0;
  Slot* ready_head_ = nullptr;
  Slot* ready_tail_ = nullptr;
  std::array<std::uint64_t, kFrameDropCount> drops_{};
  std::uint64_t frames_in_ = 0;
};

}  // namespace switchyard
