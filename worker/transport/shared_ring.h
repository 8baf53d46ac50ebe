// Rings: the memory for the slots of one attachment, on the side of its owner and of its writer.
//
// The owner of a mapped ring creates a file without a name (memfd). The writer gets the file's
// descriptor, and that of the pipe that wakes the owner, over a Unix socket (ring_exchange.h) and
// stores into the file directly. A random tag in the file shows that it is the ring that was
// offered. No name has to be cleaned up: the memory is freed with its last user, even if that
// process is killed. The file is sealed against shrinking, so a store into a mapping cannot fault.
// Behind the slots of a mapped ring are its doorbells (doorbells.h). A plain ring is private
// memory; the owner itself copies messages into it.
//
// Allocating and mapping touch every page once; memory() is a plain getter. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "worker/transport/descriptor.h"
#include "worker/transport/doorbells.h"
#include "worker/transport/ring_exchange.h"

namespace switchyard {

// The size of a ring. Of both, the memory of the slots is slots x slot_bytes.
struct RingShape {
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;  // a multiple of kFrameAlign
  [[nodiscard]] std::size_t bytes() const { return std::size_t{slots} * slot_bytes; }
};

// A mapping in this process; the destructor unmaps it.
class RingPages {
 public:
  RingPages() = default;
  explicit RingPages(std::span<std::byte> memory) : memory_(memory) {}
  RingPages(RingPages&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  RingPages& operator=(RingPages&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  RingPages(const RingPages&) = delete;
  RingPages& operator=(const RingPages&) = delete;
  ~RingPages();
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  // The first `bytes`; empty where nothing is mapped.
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const {
    return memory_.first(std::min(bytes, memory_.size()));
  }

 private:
  std::span<std::byte> memory_;
};

// Zeroed private memory whose pages are present. Empty for 0 bytes. Errors: kResourceExhausted
// (OUT_OF_MEMORY).
absl::StatusOr<RingPages> AllocatePages(std::size_t bytes);

// An inbound ring of this process. Its slots are zeroed, and its pages are present. The destructor
// frees it, and tells a peer that still rings that it is closed. The memory is never reused, so
// such a peer cannot corrupt a later ring.
class InboundRing {
 public:
  enum class Kind : std::uint8_t { kMapped, kPlain };

  // `tag`: a random number, which other memory is unlikely to contain. Errors: kResourceExhausted
  // (OUT_OF_MEMORY).
  static absl::StatusOr<InboundRing> Allocate(Kind kind, const RingShape& shape, std::uint64_t tag);
  InboundRing() = default;
  InboundRing(InboundRing&& other) noexcept = default;
  InboundRing& operator=(InboundRing&& other) noexcept;
  ~InboundRing();

  [[nodiscard]] bool mapped() const { return file_.valid(); }
  // The slots.
  [[nodiscard]] std::span<std::byte> memory() const { return pages_.first(bytes_); }
  // REQUIRES: mapped().
  [[nodiscard]] BellOwner& bells() { return bells_; }
  [[nodiscard]] const BellOwner& bells() const { return bells_; }
  // The file's descriptor, for peers that are to map it; -1 for a plain ring.
  [[nodiscard]] int file() const { return file_.get(); }

 private:
  absl::Status AllocateMapped(const RingShape& shape, std::uint64_t tag);

  // Both clean up after themselves, even if Allocate fails halfway.
  Descriptor file_;  // of a mapped ring
  RingPages pages_;
  std::size_t bytes_ = 0;  // of the slots
  BellOwner bells_;
};

// A peer's ring, mapped into this process with its pages present. The memory exists until both the
// owner and this object have released it.
class PeerRing {
 public:
  // `parts` came from the peer, `shape` and `tag` are those of its offer. REQUIRES: CheckPeerOffer
  // has accepted the shape; the descriptors may be anything. Errors: kFailedPrecondition
  // (TRANSPORT) if this process cannot map the file, or the descriptors are not those of that ring.
  static absl::StatusOr<PeerRing> Map(RingParts parts, const RingShape& shape, std::uint64_t tag);
  PeerRing() = default;

  // The slots; empty if nothing is mapped.
  [[nodiscard]] std::span<std::byte> memory() const { return pages_.first(bytes_); }
  // Tells the owner that there is a frame in `slot`; makes all stores before it visible. At most
  // one system call, and none while the owner is awake. False if the owner has to be told by a
  // message.
  bool Ring(std::uint32_t slot);

 private:
  PeerRing(RingPages pages, std::size_t bytes, const BellPeer& bells, Descriptor wake)
      : pages_(std::move(pages)), bytes_(bytes), bells_(bells), wake_(std::move(wake)) {}

  RingPages pages_;
  std::size_t bytes_ = 0;  // of the slots
  BellPeer bells_;
  Descriptor wake_;
};

}  // namespace switchyard
