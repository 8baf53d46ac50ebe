// Decides what becomes of one request frame that has landed in a slot: run it, refuse it with a
// reason, or drop it.
//
// The transport has checked magic, version, enums, attachment number, cookie and slot bounds. Here
// the metadata is copied out of the slot and only the copy is used, because the peer can still
// write to the slot. Then length and CRC decide whether the frame is believed at all (if not:
// dropped, no answer), and its contents decide whether it can be served (if not: an error reply).
// Pure; allocates only for refusals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/dispatch_config.h"
#include "core/moe_shape.h"
#include "worker/expert/layer_runtime.h"
#include "worker/routing/request_codec.h"
#include "worker/transport/frame.h"

namespace switchyard {

// The frames that the attachment accepts.
struct IntakeRules {
  absl::string_view worker_id;  // for error texts
  MoeShape shape;               // of every layer of the session
  DispatchMode mode = DispatchMode::kNormal;
  const EpochRuntime* runtime = nullptr;  // of the frame's epoch; nullptr: not bound here
  std::size_t reply_slot_bytes = 0;       // what the peer's reply slot takes
  // The session's limit (worker/expert/attach_grant.h).
  std::uint32_t rows_max = std::numeric_limits<std::uint32_t>::max();
};

// A frame as the transport delivered it. Everything it points at is the peer's and is read once.
struct IncomingFrame {
  const HeaderBytes* raw = nullptr;
  const FrameHeader* header = nullptr;
  std::span<const std::byte> payload;  // the slot after its header; the peer may still write there
  // The slot in memory of the device, where the rows of a frame with kRowsOnDevice are; else null.
  const std::byte* on_device = nullptr;
};

// The verdict. At most one of `drop` and `refusal` is set; with neither, the request can run.
struct RequestIntake {
  FrameDrop drop = FrameDrop::kNone;  // else: not a frame to be believed
  absl::Status refusal;               // else: an error reply is due
  const LayerRuntime* layer = nullptr;
  RequestView view;  // over the copy
  // Dense, in the slot or on the device: rows of the header's dtype, and their scales where it has
  // any.
  const std::byte* rows = nullptr;
  const std::byte* scales = nullptr;
};

// Rows that a request can have whose answer fits a slot of `slot_bytes`.
std::size_t RequestRowsMax(std::size_t slot_bytes, const MoeShape& shape);
// Words of metadata that such a request can have, in either mode.
std::size_t MetadataWordsMax(std::size_t slot_bytes, const MoeShape& shape);

// `copy` has MetadataWordsMax words and becomes the frame's private metadata; the result's view
// points into it. O(metadata); for a layer or epoch that is unknown here, up to 16 times that.
RequestIntake TakeInRequest(const IntakeRules& rules, const IncomingFrame& frame,
                            std::span<std::uint32_t> copy);

}  // namespace switchyard
