// The transport seam: pairs of rings between two processes, and a doorbell.
//
// A Link is one side of an attachment: an inbound ring, which it owns and the peer writes to, and
// the peer's ring, which it writes to. Transports do not decide which frame goes where; credits,
// plans and replies belong to worker/source and worker/expert. A sender writes a frame into
// OutboundSlot(slot), header first, and calls Send; the transport then calls the peer's FrameSink.
//
// The transport checks magic, version, enums, attachment number, cookie, slot, that the length fits
// into the slot and that the payload has arrived completely. A frame that fails is dropped and
// counted (TransportStats), never answered. The sink's owner checks the CRC and the exact length,
// because only the owner knows the plan; it reports a drop through CountDrop.
//
// Threads: a Transport, its links and its sink belong to one thread, or to a mutex that the owner
// holds around every call. Only Wake(), Wait(), MakeMemory() and RunAside() may be called without
// that mutex. Once connected, Progress and Send do not allocate, lock or log. Implementations:
// loopback/ (one process), ucx/ (shared memory, tcp). docs/EXTENDING.md shows how to add one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/memory_kind.h"
#include "core/session_messages.h"
#include "worker/transport/frame.h"

namespace switchyard {

// The way in which rows travel to the peer.
enum class LinkPath : std::uint8_t { kNone = 0, kMapped = 1, kMessages = 2, kInProcess = 3 };
absl::string_view LinkPathName(LinkPath path);  // "none", "mapped", "messages", "inproc"

class Link;

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A frame has arrived in an inbound slot: header.request_slot if kind is kRequest, otherwise
  // header.reply_slot. `payload` is the memory after the header in this slot, valid until the slot
  // is sent to again. In a mapped ring the peer can still change it: copy metadata before checking
  // it.
  virtual void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                       std::span<const std::byte> payload) = 0;
  // The peer is gone or the link is broken. Called once for a link. The owner must close the link,
  // within this call or later.
  virtual void OnLinkDown(Link& link, const absl::Status& why) = 0;
};

// The memory of a link, made before the link (Transport::MakeMemory): the pages of its ring, and
// the peer's ring or what replaces it. Making, mapping and freeing them takes milliseconds for each
// 10 MiB, for which the owner's thread has no time. Used by one thread at a time.
class LinkMemory {
 public:
  virtual ~LinkMemory() = default;
  // The part of Link::Connect that takes time, for the same offer: waits at most a second for the
  // peer's process if this link connects at once, and maps the peer's ring or makes the memory for
  // messages to it. What fails is told by Connect.
  virtual void Meet(const RingOffer& peer) = 0;
};

struct LinkOptions {
  Cookie cookie{};               // inbound frames with another cookie are dropped
  std::uint32_t slots = 8;       // in each of the two rings
  std::uint32_t slot_bytes = 0;  // including the header; rounded up to kFrameAlign
  // The largest slots that the peer's ring may have; 0: any. A sender pays for the peer's ring.
  std::uint32_t peer_slot_bytes_max = 0;
  TransportChoice choice = TransportChoice::kAuto;
  // Connect follows before the peer gets the offer. So this side goes to the peer for what both
  // need to map each other's rings, and makes no connection until the peer has said that it lets it
  // in. Of the two sides of a link exactly one connects at once, and first.
  bool connects_at_once = false;
  // From MakeMemory with the same options. Null: CreateLink and Connect make it themselves.
  std::shared_ptr<LinkMemory> memory = nullptr;
  // Released once all memory of the link is free, at the earliest in Close.
  std::shared_ptr<void> until_freed = nullptr;
  void* owner = nullptr;  // for the sink; the transport does not use it
};

class Link {
 public:
  virtual ~Link() = default;  // closes

  // The offer of the inbound ring. An Attach message carries it to the peer.
  [[nodiscard]] virtual const RingOffer& offer() const = 0;
  // Maps the peer's ring and lets its hosts connect; begins to connect to it, now or later. May be
  // called once. Does not wait for the peer, except in a Meet that was not called ahead; OnLinkDown
  // reports an absent one. Errors:
  // kUnavailable (TRANSPORT) if the peer cannot be reached; kFailedPrecondition (TRANSPORT) if
  // `choice` is not possible or the offer does not fit.
  virtual absl::Status Connect(const RingOffer& peer) = 0;
  [[nodiscard]] virtual LinkPath path() const = 0;
  // Why path() is kMessages; else empty.
  [[nodiscard]] virtual std::string why_messages() const { return {}; }
  // Memory for one whole frame to the peer. Only between Connect and Close.
  [[nodiscard]] virtual std::span<std::byte> OutboundSlot(std::uint32_t slot) = 0;
  // All memory that inbound payloads land in, and all that OutboundSlot gives out, for devices that
  // read and write it themselves. Empty where that is not one piece. Only between Connect and
  // Close.
  [[nodiscard]] virtual std::span<std::byte> inbound_memory() { return {}; }
  [[nodiscard]] virtual std::span<std::byte> outbound_memory() { return {}; }
  // Sends the frame of `frame_bytes` in OutboundSlot(slot). The slot must not change until its
  // credit is free again, that is, until the answer has arrived or the link is closed, because a
  // slow peer may read the bytes at any time until then. Errors: kUnavailable (WORKER_LOST) if the
  // link is down; kInternal for a slot or size that the peer's ring does not have.
  virtual absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) = 0;
  // Closes the link immediately, without waiting for frames in flight: the peer's ring is unmapped
  // and our own freed, now or soon. A peer that still has our ring mapped writes into unused pages;
  // frames that it sends are dropped and counted. The transport does not notify the peer, which
  // learns of the close from its Attach stream. Idempotent; no callback follows. A Transport closes
  // its remaining links when it is destroyed.
  virtual void Close() = 0;
  // For `status`: attachment, paths in both directions, lanes. Contains no address, rkey or cookie.
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
  std::uint64_t late_wakes = 0;  // sleeps that timed out although work had arrived
  std::uint64_t links_open = 0;
  std::uint64_t ring_bytes = 0;  // of the inbound rings of open links
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Where the slots of its links lie: those that frames land in, and those that they are sent from.
  // A device that does not reach this kind of memory gets rows by a copy.
  [[nodiscard]] virtual MemoryKind slot_memory() const = 0;
  // The library that it uses, with its version: "UCX 1.13.1". Empty where it uses none.
  [[nodiscard]] virtual std::string library() const { return {}; }
  // The IP addresses at which peers connect to it. Empty where they need not.
  [[nodiscard]] virtual std::vector<std::string> hosts() const { return {}; }
  // Errors: kResourceExhausted (OUT_OF_MEMORY); kInvalidArgument (BAD_CONFIG) for a ring without
  // slots or a choice that this transport does not support.
  virtual absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) = 0;
  // The memory for a link with these options; what fails is told by CreateLink. Null where links
  // need none. Thread-safe.
  [[nodiscard]] virtual std::shared_ptr<LinkMemory> MakeMemory(
      const LinkOptions& /*options*/) const {
    return nullptr;
  }
  // Runs `work` soon, on a thread that makes and frees the memory of links, in the order of the
  // calls; never if the transport is destroyed before. False where links need no memory: `work`
  // does not run. Thread-safe.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): transports with such a thread keep `work`.
  virtual bool RunAside(std::function<void()> /*work*/) { return false; }
  // Delivers arrived frames and broken links to `sink`. True if there was anything to do.
  virtual bool Progress(FrameSink& sink) = 0;
  // To sleep: call Progress until it returns false, then Arm() (with the owner's mutex held, if
  // there is one) and, if it returns true, Wait() once from the same thread (without the mutex).
  // Arm returns false if a frame has arrived since, and while the transport polls (busy_poll).
  virtual bool Arm() = 0;
  // Sleeps until a frame arrives, Wake() is called, or `max` has passed. Several threads may sleep
  // at once: Wake() wakes all of them, but a frame is only guaranteed to wake one.
  virtual void Wait(Duration max) = 0;
  virtual void Wake() = 0;
  // Counts a frame that the sink's owner dropped.
  virtual void CountDrop(FrameDrop drop) = 0;
  [[nodiscard]] virtual TransportStats stats() const = 0;
};

}  // namespace switchyard
