// Rings: the memory for the slots of one attachment, on the side of its owner and of its writer.
//
// The owner of a mapped ring creates a file without a name (memfd) and offers a key: its process
// id, the descriptor there, the file's inode and a random tag that is also in the ring's first
// bytes. The writer opens the file through /proc, which the kernel permits to processes of the same
// user in the same PID namespace, and stores into it directly. No name has to be cleaned up: the
// memory is freed with its last user, even if that process is killed. The file is sealed against
// shrinking, so a store into a mapping cannot fault. A plain ring is private memory; the owner
// itself copies messages into it.
//
// Allocating and mapping touch every page once; memory() is a plain getter. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/unique_handle.h"

namespace switchyard {

struct RingFileTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle fd);
};
using RingFile = UniqueHandle<RingFileTraits>;

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

 private:
  std::span<std::byte> memory_;
};

// Zeroed private memory whose pages are present. Empty for 0 bytes. Errors: kResourceExhausted
// (OUT_OF_MEMORY).
absl::StatusOr<RingPages> AllocatePages(std::size_t bytes);

// An inbound ring of this process. It is zeroed except for the tag, and its pages are present. The
// destructor frees it. The memory is never reused, so a peer that still has it mapped cannot
// corrupt a later ring.
class InboundRing {
 public:
  enum class Kind : std::uint8_t { kMapped, kPlain };

  // `tag`: a random number, which other memory is unlikely to contain.
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<InboundRing> Allocate(Kind kind, std::size_t bytes, std::uint64_t tag);
  InboundRing() = default;

  [[nodiscard]] bool mapped() const { return file_.valid(); }
  [[nodiscard]] std::span<std::byte> memory() const { return pages_.memory(); }
  // For RingOffer.rkey; empty for a plain ring. A secret: never logged.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  absl::Status AllocateMapped(std::size_t bytes, std::uint64_t tag);

  // Both clean up after themselves, even if Allocate fails halfway.
  RingFile file_;  // of a mapped ring
  RingPages pages_;
  std::string key_;
};

// A peer's ring, mapped into this process with its pages present. The memory exists until both the
// owner and this object have released it.
class PeerRing {
 public:
  // `key` is the peer's InboundRing::key(), `bytes` the ring size in its offer. Errors:
  // kFailedPrecondition (TRANSPORT) if this process cannot map the file or the file is not that
  // ring.
  static absl::StatusOr<PeerRing> Map(absl::string_view key, std::size_t bytes);
  PeerRing() = default;

  [[nodiscard]] std::span<std::byte> memory() const { return pages_.memory(); }

 private:
  explicit PeerRing(RingPages pages) : pages_(std::move(pages)) {}

  RingPages pages_;
};

}  // namespace switchyard
