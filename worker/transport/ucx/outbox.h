// Outbox: what one link sends, and how.
//
//   mapped    rows are already in the peer's ring; one active message of 64 bytes, the header
//   messages  rows are in a staging slot here; for each kPieceBytes of payload one active message
//             with header {frame header, offset u32, zero u32} and that piece as its data
//
// Each message is handed to the kernel, or to UCX's own buffer, before ucp_am_send_nbx returns; if
// that cannot be, because the connection is not up yet or the peer does not read, it is not sent at
// all and waits here for Flush. So UCX never refers to memory of ours, an outbox may go at any
// time, and UCX's wireup protocol, which aborts the process when a connection breaks under it, is
// never entered.
//
// All memory is allocated by the constructor. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
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
  // Queues what stands in `slot` behind what waits already; Flush sends it. At least a header, at
  // most slot_bytes. A slot that still waits is sent once, as it then stands.
  void Queue(std::uint32_t slot, std::size_t frame_bytes);
  // Sends what UCX takes now. UCS_OK also when something must wait; else the endpoint is broken.
  // `*any` is set when something went.
  ucs_status_t Flush(ucp_ep_h endpoint, bool* any);
  [[nodiscard]] bool empty() const { return head_ == kNone; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  // A slot's place in the queue.
  struct Entry {
    std::size_t frame_bytes = 0;
    std::size_t sent_bytes = 0;  // of the payload
    bool queued = false;
    std::uint32_t next = kNone;
  };

  // One message; UCS_INPROGRESS when the frame has more.
  ucs_status_t SendOne(ucp_ep_h endpoint, std::uint32_t slot, Entry* entry) const;
  void Pop();

  const Geometry geometry_;
  const bool mapped_;
  std::span<std::byte> memory_;  // of all slots, here or at the peer
  std::vector<Entry> entries_;   // by slot
  std::uint32_t head_ = kNone;
  std::uint32_t tail_ = kNone;
};

}  // namespace switchyard
