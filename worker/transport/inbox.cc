#include "worker/transport/inbox.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "worker/transport/shared_stores.h"

namespace switchyard {
namespace {

constexpr std::size_t kGreetingCookieAt = 8;

}  // namespace

GreetingBytes EncodeGreeting(AttachmentId attachment, Cookie cookie) {
  GreetingBytes greeting{};
  std::memcpy(greeting.data(), &attachment.value, sizeof(attachment.value));
  std::memcpy(&greeting[kGreetingCookieAt], &cookie.value, sizeof(cookie.value));
  return greeting;
}

AttachmentId Inbox::Add(Link* link, const Ring& ring) {
  SY_CHECK(ring.slot_bytes >= kFrameHeaderBytes &&
               ring.memory.size() >= std::size_t{ring.slots} * ring.slot_bytes,
           "a ring with less memory than its slots take");
  // Numbers wrap after 2^32 links; 0 stands for "none" and a number in use is passed over.
  do {
    ++last_attachment_;
  } while (last_attachment_ == 0 || entries_.contains(AttachmentId{last_attachment_}));
  const AttachmentId attachment{last_attachment_};

  auto entry = std::make_unique<Entry>();
  entry->link = link;
  entry->ring = ring;
  // Slots are referenced by pointer from the ready queue, so the vector must not grow later.
  entry->slots.resize(ring.slots);
  for (std::uint32_t i = 0; i < ring.slots; ++i) {
    entry->slots[i].entry = entry.get();
    entry->slots[i].index = i;
  }
  entries_.emplace(attachment, std::move(entry));
  return attachment;
}

void Inbox::Remove(AttachmentId attachment) {
  const auto found = entries_.find(attachment);
  if (found == entries_.end()) return;
  const Entry* gone = found->second.get();
  // The entry's slots are about to be freed, so none of them may stay in the queue.
  Slot* kept_tail = nullptr;
  // Unlink the removed slots in one pass over the queue, and find its new tail.
  for (Slot** at = &ready_head_; *at != nullptr;) {
    if ((*at)->entry == gone) {
      *at = (*at)->next_ready;
    } else {
      kept_tail = *at;
      at = &(*at)->next_ready;
    }
  }
  ready_tail_ = kept_tail;
  entries_.erase(found);
}

std::span<const std::byte> Inbox::HeaderIn(const Slot& slot) {
  const Ring& ring = slot.entry->ring;
  return ring.memory.subspan(static_cast<std::size_t>(slot.index) * ring.slot_bytes,
                             kFrameHeaderBytes);
}

std::span<std::byte> Inbox::PayloadOf(const Slot& slot, std::uint32_t bytes) {
  const Ring& ring = slot.entry->ring;
  const std::size_t begin = static_cast<std::size_t>(slot.index) * ring.slot_bytes;
  return ring.memory.subspan(begin + kFrameHeaderBytes, bytes);
}

FrameDrop Inbox::Admit(std::span<const std::byte> bytes, FrameHeader* header, Slot** slot) {
  const FrameDrop drop = DecodeHeader(bytes, header);
  if (drop != FrameDrop::kNone) return drop;
  const auto found = entries_.find(header->attachment);
  if (found == entries_.end()) return FrameDrop::kAttachment;
  Entry& entry = *found->second;
  if (header->cookie != entry.ring.cookie) return FrameDrop::kCookie;
  if (header->request_slot >= entry.ring.slots || header->reply_slot >= entry.ring.slots) {
    return FrameDrop::kSlot;
  }
  if (header->payload_bytes > entry.ring.slot_bytes - kFrameHeaderBytes) return FrameDrop::kLength;
  *slot =
      &entry.slots[header->kind == FrameKind::kRequest ? header->request_slot : header->reply_slot];
  // A slot in the queue has a frame that the sink has not seen; overwriting it would lose a frame.
  return (*slot)->ready ? FrameDrop::kSlot : FrameDrop::kNone;
}

void Inbox::MakeReady(Slot* slot, std::span<const std::byte> bytes, const FrameHeader& header) {
  // The peer stored the payload before it sent the doorbell; reads from here on must see it.
  AcquireStores();
  slot->ready = true;
  slot->landing = false;
  std::memcpy(slot->raw.data(), bytes.data(), kFrameHeaderBytes);
  slot->header = header;
  slot->next_ready = nullptr;
  (ready_tail_ == nullptr ? ready_head_ : ready_tail_->next_ready) = slot;
  ready_tail_ = slot;
}

void Inbox::OnDoorbell(std::span<const std::byte> header_bytes) {
  FrameHeader header;
  Slot* slot = nullptr;
  FrameDrop drop = Admit(header_bytes, &header, &slot);
  // A plain ring cannot hold the payload of a doorbell: its bytes never arrived.
  if (drop == FrameDrop::kNone && header.payload_bytes > 0 && !slot->entry->ring.mapped) {
    drop = FrameDrop::kTruncated;
  }
  // A doorbell that comes again, and late, finds the next frame in its slot.
  if (drop == FrameDrop::kNone && header.payload_bytes > 0) {
    AcquireStores();
    if (!std::ranges::equal(HeaderIn(*slot), header_bytes)) drop = FrameDrop::kSlot;
  }
  if (drop != FrameDrop::kNone) return CountDrop(drop);
  MakeReady(slot, header_bytes, header);
}

void Inbox::OnRung(AttachmentId attachment, std::uint32_t slot_index) {
  const auto found = entries_.find(attachment);
  if (found == entries_.end()) return CountDrop(FrameDrop::kAttachment);
  const Ring& ring = found->second->ring;
  if (slot_index >= ring.slots) return CountDrop(FrameDrop::kSlot);
  AcquireStores();
  // A copy, because the peer can change the original between the guards and its use.
  HeaderBytes raw;
  std::memcpy(raw.data(), &ring.memory[std::size_t{slot_index} * ring.slot_bytes], raw.size());
  FrameHeader header;
  Slot* slot = nullptr;
  FrameDrop drop = Admit(raw, &header, &slot);
  if (drop == FrameDrop::kNone && slot != &found->second->slots[slot_index]) {
    drop = FrameDrop::kSlot;
  }
  if (drop != FrameDrop::kNone) return CountDrop(drop);
  MakeReady(slot, raw, header);
}

FrameDrop Inbox::Land(std::span<const std::byte> bytes, std::uint32_t offset,
                      std::span<const std::byte> piece) {
  FrameHeader header;
  Slot* slot = nullptr;
  const FrameDrop drop = Admit(bytes, &header, &slot);
  if (drop != FrameDrop::kNone) return drop;
  if (offset > header.payload_bytes) return FrameDrop::kLength;
  const std::size_t expected = std::min<std::size_t>(kPieceBytes, header.payload_bytes - offset);
  // A short piece means that the sender uses another piece size or that bytes were lost.
  if (piece.size() > expected) return FrameDrop::kLength;
  if (piece.size() < expected) return FrameDrop::kTruncated;
  if (offset == 0) {
    // An incomplete frame is replaced by the next one for its slot: pieces arrive in order, so its
    // missing pieces will not come any more.
    if (slot->landing) CountDrop(FrameDrop::kTruncated);
    slot->landing = true;
    slot->landed_bytes = 0;
    std::memcpy(slot->raw.data(), bytes.data(), kFrameHeaderBytes);
    // Pieces of two frames must not mix, so each piece has to continue the same header.
  } else if (!slot->landing || offset != slot->landed_bytes ||
             std::memcmp(slot->raw.data(), bytes.data(), kFrameHeaderBytes) != 0) {
    slot->landing = false;
    return FrameDrop::kTruncated;
  }
  if (!piece.empty()) {
    std::memcpy(PayloadOf(*slot, header.payload_bytes).data() + offset, piece.data(), piece.size());
  }
  slot->landed_bytes += static_cast<std::uint32_t>(piece.size());
  if (slot->landed_bytes == header.payload_bytes) MakeReady(slot, bytes, header);
  return FrameDrop::kNone;
}

void Inbox::OnPiece(std::span<const std::byte> header, std::uint32_t offset,
                    std::span<const std::byte> piece) {
  const FrameDrop drop = Land(header, offset, piece);
  if (drop != FrameDrop::kNone) CountDrop(drop);
}

Link* Inbox::OnGreeting(std::span<const std::byte> greeting) {
  AttachmentId attachment;
  Cookie cookie;
  FrameDrop drop = FrameDrop::kTruncated;
  if (greeting.size() == kGreetingBytes) {
    std::memcpy(&attachment.value, greeting.data(), sizeof(attachment.value));
    std::memcpy(&cookie.value, &greeting[kGreetingCookieAt], sizeof(cookie.value));
    const auto found = entries_.find(attachment);
    if (found != entries_.end() && found->second->ring.cookie == cookie) return found->second->link;
    drop = found == entries_.end() ? FrameDrop::kAttachment : FrameDrop::kCookie;
  }
  CountDrop(drop);
  return nullptr;
}

bool Inbox::Deliver(FrameSink& sink) {
  const bool any = ready_head_ != nullptr;
  while (ready_head_ != nullptr) {
    Slot& slot = *ready_head_;
    // Unlinked before the sink runs, because the sink may remove the link's ring.
    ready_head_ = slot.next_ready;
    if (ready_head_ == nullptr) ready_tail_ = nullptr;
    slot.ready = false;
    ++frames_in_;
    // The sink gets copies, because it may close the link, which frees the slot.
    const HeaderBytes raw = slot.raw;
    const FrameHeader header = slot.header;
    sink.OnFrame(*slot.entry->link, raw, header, PayloadOf(slot, header.payload_bytes));
  }
  return any;
}

}  // namespace switchyard
