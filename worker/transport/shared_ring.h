// Rings: the memory of one attachment's slots, as its owner and as its writer see it.
//
// The owner of a mapped ring makes a file without a name (memfd) and offers a key: its process, the
// descriptor there, the file's number and a random tag that stands in the ring's first bytes. The
// writer opens it through /proc, which the kernel allows to processes of one user that see each
// other, and stores into it directly. There is no name to clean up: the memory is gone with its
// last user, however that one ends. The file cannot shrink, so no store into a mapping faults. A
// plain ring is private memory into which the owner itself lands messages.
//
// Making and mapping cost a system call for each page; memory() costs nothing. Not thread-safe.
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

// Pages of this process; unmapped when destroyed.
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

// The own inbound ring. Zeroed but for the tag, its pages present. Freed, never reused, when
// destroyed; a peer that still has it mapped then writes into pages that nobody reads.
class InboundRing {
 public:
  enum class Kind : std::uint8_t { kMapped, kPlain };

  // `tag` is any number that is unlikely to stand in other memory.
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<InboundRing> Allocate(Kind kind, std::size_t bytes, std::uint64_t tag);
  InboundRing() = default;

  [[nodiscard]] bool mapped() const { return file_.valid(); }
  [[nodiscard]] std::span<std::byte> memory() const { return pages_.memory(); }
  // For RingOffer.rkey; empty for a plain ring. A secret: never logged.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  absl::Status AllocateMapped(std::size_t bytes, std::uint64_t tag);
  absl::Status AllocatePlain(std::size_t bytes);

  RingFile file_;  // of a mapped ring
  RingPages pages_;
  std::string key_;
};

// The peer's ring, mapped into this process, its pages present. The ring lives on for as long as
// its owner or this has it.
class PeerRing {
 public:
  // `key` as InboundRing::key() gave it, `bytes` of the offer. Errors: kFailedPrecondition
  // (TRANSPORT) when this process cannot map it, or it is not that ring.
  static absl::StatusOr<PeerRing> Map(absl::string_view key, std::size_t bytes);
  PeerRing() = default;

  [[nodiscard]] std::span<std::byte> memory() const { return pages_.memory(); }

 private:
  explicit PeerRing(RingPages pages) : pages_(std::move(pages)) {}

  RingPages pages_;
};

}  // namespace switchyard
