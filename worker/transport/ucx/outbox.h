// Outbox: the frames that one link sends through UCX.
//
//   mapped    the rows are already in the peer's ring; sends one active message of 64 bytes, the
//             header. Only what the doorbells in the ring do not take comes here.
//   messages  the rows are in a staging slot here; sends one active message for each kPieceBytes of
//             payload, with header {frame header, offset u32, zero u32} and the piece as its data
//
// UCX copies each message to the kernel or to its own buffer before ucp_am_send_nbx returns. If it
// cannot, because the connection is not up yet or the peer does not read, it sends nothing and the
// frame waits here for Flush. So UCX never refers to our memory, and an outbox may be destroyed at
// any time. UCX's wireup protocol, which aborts the process if a connection breaks during it, is
// never entered.
//
// A greeting (inbox.h) is a header without data.
//
// Allocates when it is made, and not thereafter. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <ucp/api/ucp.h>

#include "worker/transport/frame.h"
#include "worker/transport/inbox.h"
#include "worker/transport/shared_ring.h"

namespace switchyard {

// The id of the active messages with frames.
inline constexpr unsigned kFrameMessageId = 0;
// Length of a piece's header. A doorbell's header has kFrameHeaderBytes, which distinguishes them.
inline constexpr std::size_t kPieceHeaderBytes = kFrameHeaderBytes + 8;

// UCS_ERR_NO_RESOURCE if UCX cannot send it yet.
ucs_status_t SendGreeting(ucp_ep_h endpoint, const GreetingBytes& greeting);

class UcxOutbox {
 public:
  // `memory`: of the peer's slots, in its ring if that is `mapped`, else staging memory of the same
  // size. It outlives this.
  UcxOutbox(const RingShape& shape, std::span<std::byte> memory, bool mapped);
  UcxOutbox(const UcxOutbox&) = delete;
  UcxOutbox& operator=(const UcxOutbox&) = delete;

  // The memory of one slot, in the peer's ring or in the staging memory.
  [[nodiscard]] std::span<std::byte> Slot(std::uint32_t slot) const;
  // The memory of all slots.
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  // Appends the frame in `slot` to the queue; Flush sends it. `frame_bytes`: at least a header, at
  // most slot_bytes. A slot that is already queued is sent once, with its content at that time.
  void Queue(std::uint32_t slot, std::size_t frame_bytes);
  // Sends queued frames as far as UCX accepts them; sets `*any` if it sent a message. Returns
  // UCS_OK even if frames have to wait; any other status means that the endpoint is broken.
  ucs_status_t Flush(ucp_ep_h endpoint, bool* any);
  [[nodiscard]] bool empty() const { return head_ == kNone; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  // The state of a slot in the queue.
  struct Entry {
    std::size_t frame_bytes = 0;
    std::size_t sent_bytes = 0;  // of the payload
    bool queued = false;
    std::uint32_t next = kNone;
  };

  // Sends one message. UCS_INPROGRESS if the frame needs more messages.
  ucs_status_t SendOne(ucp_ep_h endpoint, std::uint32_t slot, Entry* entry) const;
  // Removes the first slot of the queue.
  void Pop();

  const RingShape shape_;
  const bool mapped_;
  const std::span<std::byte> memory_;
  std::vector<Entry> entries_;  // by slot
  std::uint32_t head_ = kNone;
  std::uint32_t tail_ = kNone;
};

}  // namespace switchyard
