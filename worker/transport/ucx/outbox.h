// Outbox: what one link sends, and the memory that must outlive each send.
//
//   mapped    rows are already in the peer's ring; one active message of 64 bytes, the header
//   messages  rows are in a staging slot here; for each kPieceBytes of payload one active message
//             with header {frame header, offset u32, zero u32} and that piece as its data
//
// UCX may read headers and staging until it completes a send, and a stopped peer puts that off for
// as long as it likes. So an outbox whose link is closed lives on until pending() is 0.
//
// All memory is allocated by the constructor. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ucp/api/ucp.h>

#include "worker/transport/frame.h"

namespace switchyard {

// The id of the active messages that carry frames.
inline constexpr unsigned kFrameMessageId = 0;
// A doorbell's header is kFrameHeaderBytes long, a piece's this.
inline constexpr std::size_t kPieceHeaderBytes = kFrameHeaderBytes + 8;

class UcxOutbox {
 public:
  struct Geometry {
    std::uint32_t slots = 0;
    std::uint32_t slot_bytes = 0;
  };
  // `mapped_ring`: the peer's ring where it is mapped, empty to send messages.
  UcxOutbox(const Geometry& geometry, std::span<std::byte> mapped_ring);
  UcxOutbox(const UcxOutbox&) = delete;
  UcxOutbox& operator=(const UcxOutbox&) = delete;
  ~UcxOutbox();

  [[nodiscard]] std::span<std::byte> Slot(std::uint32_t slot) const;
  // Begins to send what stands in `slot`; at least a header, at most slot_bytes.
  ucs_status_t Send(ucp_ep_h endpoint, std::uint32_t slot, std::size_t frame_bytes);
  // Sends that UCX has not completed.
  [[nodiscard]] std::size_t pending() const { return pending_; }

 private:
  using PieceHeader = std::array<std::byte, kPieceHeaderBytes>;

  static void OnSent(void* request, ucs_status_t status, void* user_data);
  ucs_status_t Post(ucp_ep_h endpoint, std::span<const std::byte> header,
                    std::span<const std::byte> data);

  const Geometry geometry_;
  const bool mapped_;
  const std::size_t pieces_per_slot_;
  std::span<std::byte> memory_;       // of all slots, here or at the peer
  std::vector<PieceHeader> headers_;  // slots x pieces_per_slot
  std::size_t pending_ = 0;
};

}  // namespace switchyard
