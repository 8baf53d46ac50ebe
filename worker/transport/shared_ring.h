// Rings: the memory for the slots of one attachment, on the side of its owner and of its writer.
//
// The owner of a mapped ring creates a file without a name (memfd) and offers a key: its process
// id, the descriptor there, the file's inode, the same of the pipe that wakes it, and a random tag
// that is also in the file. The writer opens both through /proc, which the kernel permits to
// processes of the same user in the same PID namespace, and stores into the file directly. No name
// has to be cleaned up: the memory is freed with its last user, even if that process is killed. The
// file is sealed against shrinking, so a store into a mapping cannot fault. Behind the slots of a
// mapped ring are its doorbells (doorbells.h). A plain ring is private memory; the owner itself
// copies messages into it.
//
// Allocating and mapping touch every page once; memory() is a plain getter. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/transport/descriptor.h"
#include "worker/transport/doorbells.h"

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

  // `tag`: a random number, which other memory is unlikely to contain. `wake_pipe`: a descriptor of
  // the pipe that peers write a byte to when they ring a sleeping owner; not owned. Errors:
  // kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<InboundRing> Allocate(Kind kind, const RingShape& shape, std::uint64_t tag,
                                              int wake_pipe);
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
  // For RingOffer.rkey; empty for a plain ring. A secret: never logged.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  absl::Status AllocateMapped(const RingShape& shape, std::uint64_t tag, int wake_pipe);

  // Both clean up after themselves, even if Allocate fails halfway.
  Descriptor file_;  // of a mapped ring
  RingPages pages_;
  std::size_t bytes_ = 0;  // of the slots
  BellOwner bells_;
  std::string key_;
};

// A peer's ring, mapped into this process with its pages present. The memory exists until both the
// owner and this object have released it.
class PeerRing {
 public:
  // `key` is the peer's InboundRing::key(), `shape` the ring's in its offer. REQUIRES:
  // CheckPeerOffer has accepted the offer; the key may be anything. Errors: kFailedPrecondition
  // (TRANSPORT) if this process cannot map the file or the file is not that ring.
  static absl::StatusOr<PeerRing> Map(absl::string_view key, const RingShape& shape);
  PeerRing() = default;

  // The slots; empty if nothing is mapped.
  [[nodiscard]] std::span<std::byte> memory() const { return pages_.first(bytes_); }
  // Tells the owner that there is a frame in `slot`; makes all stores before it visible. At most
  // one system call, and none while the owner is awake. False if the owner has to be told by a
  // message.
  bool Ring(std::uint32_t slot);

 private:
  PeerRing(RingPages pages, std::size_t bytes, const BellPeer& bells, Descriptor wake_pipe)
      : pages_(std::move(pages)), bytes_(bytes), bells_(bells), wake_pipe_(std::move(wake_pipe)) {}

  RingPages pages_;
  std::size_t bytes_ = 0;  // of the slots
  BellPeer bells_;
  Descriptor wake_pipe_;
};

}  // namespace switchyard
