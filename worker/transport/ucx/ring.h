// Rings: the memory of one attachment's slots, as its owner and as its writer see it.
//
// The owner of a mapped ring has UCX allocate it and offers its rkey; the writer maps it by that
// rkey and stores into it directly. A tag that the owner leaves in the first bytes proves to the
// writer that what it mapped is that ring and no other. A plain ring is private memory into which
// the owner itself lands messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

namespace switchyard {

// The own inbound ring. Zeroed, its pages present. Freed, never reused, when destroyed.
class UcxRing {
 public:
  enum class Kind : std::uint8_t { kMapped, kPlain };

  // `tag` is any number that is unlikely to stand in other memory.
  // Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<UcxRing> Allocate(ucp_context_h context, Kind kind, std::size_t bytes,
                                          std::uint64_t tag);
  UcxRing() = default;
  UcxRing(UcxRing&& other) noexcept;
  UcxRing& operator=(UcxRing&& other) noexcept;
  UcxRing(const UcxRing&) = delete;
  UcxRing& operator=(const UcxRing&) = delete;
  ~UcxRing() { Free(); }

  [[nodiscard]] bool mapped() const { return handle_ != nullptr; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  // Sealed, for RingOffer.rkey; empty for a plain ring.
  [[nodiscard]] const std::string& rkey() const { return rkey_; }

 private:
  absl::Status AllocateMapped(ucp_context_h context, std::size_t bytes, std::uint64_t tag);
  absl::Status AllocatePlain(std::size_t bytes);
  void Free();

  ucp_context_h context_ = nullptr;
  ucp_mem_h handle_ = nullptr;  // of a mapped ring
  std::span<std::byte> memory_;
  std::string rkey_;
};

// The peer's ring, mapped into this process. Unmapped when destroyed; the ring lives on for as long
// as its owner has it.
class UcxPeerRing {
 public:
  // `rkey` as UcxRing::rkey() gave it; `address` and `bytes` of the offer.
  // Errors: reason TRANSPORT, when this process cannot map it or it is not that ring.
  static absl::StatusOr<UcxPeerRing> Map(ucp_ep_h endpoint, absl::string_view rkey,
                                         std::uint64_t address, std::size_t bytes);
  UcxPeerRing() = default;
  UcxPeerRing(UcxPeerRing&& other) noexcept;
  UcxPeerRing& operator=(UcxPeerRing&& other) noexcept;
  UcxPeerRing(const UcxPeerRing&) = delete;
  UcxPeerRing& operator=(const UcxPeerRing&) = delete;
  ~UcxPeerRing() { Unmap(); }

  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  void Unmap();

  ucp_rkey_h rkey_ = nullptr;
  std::span<std::byte> memory_;
};

}  // namespace switchyard
