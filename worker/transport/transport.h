// The transport seam: pairs of rings between two processes, and a doorbell.
//
// A Link is one attachment as one side sees it: an inbound ring that it owns (the peer writes
// there) and the peer's ring that it may write to. Which frame goes where is not decided here:
// credits, plans and replies are above (worker/session, worker/layer). A frame is written into
// OutboundSlot(slot), header first, and sent; the peer's FrameSink is told.
//
// What the transport guarantees to its sink: magic, version, enums, attachment number, cookie,
// slot, length within the slot and, after the payload has landed, that the frame is whole. What
// fails is dropped and counted (TransportStats), never answered. The CRC and the exact length are
// checked by the sink's owner, who knows the plan (FrameDrop goes back through CountDrop).
//
// Threads: a Transport, its links and its sink belong to one thread, or to a mutex that its owner
// holds around every call; Wake() and Wait() may be called without that mutex. Progress and Send
// allocate nothing after Connect, lock nothing, log nothing. Implementations: loopback/ (one
// process), ucx/ (shared memory, tcp). docs/EXTENDING.md adds one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/session_messages.h"
#include "worker/transport/frame.h"

namespace switchyard {

// How rows travel towards the peer.
enum class LinkPath : std::uint8_t { kNone = 0, kMapped = 1, kMessages = 2, kInProcess = 3 };
absl::string_view LinkPathName(LinkPath path);  // "none", "mapped", "messages", "inproc"

class Link;

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame has landed in the inbound slot: header.request_slot when kind is kRequest, else
  // header.reply_slot. `payload` is what follows the header there (mapped memory that the peer can
  // still scribble on: copy metadata before checking it). Valid until that slot is sent to again.
  virtual void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                       std::span<const std::byte> payload) = 0;
  // The peer is gone or the link broke; told once. Close the link, outside this call or in it.
  virtual void OnLinkDown(Link& link, const absl::Status& why) = 0;
};

struct LinkOptions {
  Cookie cookie{};               // that inbound frames must carry
  std::uint32_t slots = 8;       // pairs
  std::uint32_t slot_bytes = 0;  // header included; rounded up to kFrameAlign
  TransportChoice choice = TransportChoice::kAuto;
  void* owner = nullptr;  // the sink's own use
};

class Link {
 public:
  virtual ~Link() = default;  // closes

  // Of the inbound ring, to be carried to the peer by Attach.
  [[nodiscard]] virtual const RingOffer& offer() const = 0;
  // Makes the endpoint and maps the peer's ring; once. Does not wait for the peer: one that is not
  // there is told by OnLinkDown. Errors: kUnavailable (TRANSPORT) when the peer cannot be reached;
  // kFailedPrecondition (TRANSPORT) when what is in use is not `choice`, or the offer does not fit.
  virtual absl::Status Connect(const RingOffer& peer) = 0;
  [[nodiscard]] virtual LinkPath path() const = 0;
  // Memory for one whole frame to the peer. Only between Connect and Close.
  [[nodiscard]] virtual std::span<std::byte> OutboundSlot(std::uint32_t slot) = 0;
  // Sends the frame of `frame_bytes` that stands in OutboundSlot(slot). The slot must stay as it is
  // until its pair is free again, that is until the answer came or the link is closed: a slow peer
  // may take the bytes at any time before. Errors: kUnavailable (WORKER_LOST) when the link is
  // down; kInternal for a slot or size that the peer's ring does not have.
  virtual absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) = 0;
  // Tears down at once, whatever is still on its way: unmaps the peer's ring, frees the own one. A
  // peer that still has it mapped writes into pages that nobody reads; what it sends is dropped and
  // counted. The peer is not told: it learns of a close from its Attach stream. Idempotent; no
  // callback comes after it. Links are closed before their Transport goes; it closes the rest.
  virtual void Close() = 0;
  // For `status`: attachment, paths both ways, lanes. Holds no address, rkey or cookie.
  [[nodiscard]] virtual std::string DebugString() const = 0;

  [[nodiscard]] void* owner() const { return owner_; }

 protected:
  explicit Link(void* owner) : owner_(owner) {}

 private:
  void* owner_;
};

struct TransportStats {
  std::array<std::uint64_t, kFrameDropCount> drops{};  // by FrameDrop
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t late_wakes = 0;  // work found only by the time-out of a sleep
  std::uint64_t links_open = 0;
  std::uint64_t ring_bytes = 0;  // of own inbound rings that are still allocated
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Errors: kResourceExhausted (OUT_OF_MEMORY); kInvalidArgument (BAD_CONFIG) for a ring of no
  // slots or a choice that this transport does not know.
  virtual absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) = 0;
  // Delivers what has come to `sink`; true if there was anything.
  virtual bool Progress(FrameSink& sink) = 0;
  // To sleep: Progress until it says false, Arm() (with the owner's mutex held, if there is one),
  // and if it says true one Wait() by the same thread (without the mutex). Arm is false when
  // something has come since.
  virtual bool Arm() = 0;
  // Sleeps until something comes, Wake(), or `max` has passed. Several threads may sleep at once;
  // a Wake() reaches all of them, a frame only promises to end the sleep of one.
  virtual void Wait(Duration max) = 0;
  virtual void Wake() = 0;
  virtual void CountDrop(FrameDrop drop) = 0;
  [[nodiscard]] virtual TransportStats stats() const = 0;
};

}  // namespace switchyard
