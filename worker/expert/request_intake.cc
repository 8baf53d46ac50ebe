#include "worker/expert/request_intake.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/wire_format.h"

namespace switchyard {
namespace {

RequestGeometry GeometryOf(const FrameHeader& header, const MoeShape& shape,
                           std::int32_t local_slots) {
  return {.mode = header.mode,
          .format = header.format,
          .rows = header.rows,
          .hidden = shape.hidden,
          .top_k = shape.top_k,
          .local_slots = local_slots};
}

// Copies the metadata and checks length and CRC. Lengths are compared in 64 bits: a layout of a
// forged row count may be far beyond what payload_bytes can say.
FrameDrop CopyAndCheck(const IncomingFrame& frame, const FrameLayout& layout,
                       std::span<std::uint32_t> copy) {
  const std::size_t payload = layout.frame_bytes - kFrameHeaderBytes;
  // The slot's size is a bound of its own: header and geometry come from the same, perhaps forged,
  // frame.
  if (payload != frame.header->payload_bytes || frame.payload.size() < payload ||
      layout.metadata_bytes > copy.size_bytes()) {
    return FrameDrop::kLength;
  }
  std::memcpy(copy.data(), frame.payload.data(), layout.metadata_bytes);
  return CheckCrc(*frame.raw, std::as_bytes(copy).first(layout.metadata_bytes));
}

// For a frame whose layer or epoch is unknown here. The number of slots that its metadata counts
// is then unknown too; its payload size leaves at most 16 candidates, and the CRC finds the one.
FrameDrop CheckWithUnknownSlots(const IncomingFrame& frame, const MoeShape& shape,
                                std::span<std::uint32_t> copy) {
  FrameDrop drop = FrameDrop::kLength;
  for (std::int32_t slots = 0; slots <= shape.experts; ++slots) {
    const FrameLayout layout = LayoutOfRequest(GeometryOf(*frame.header, shape, slots));
    const FrameDrop tried = CopyAndCheck(frame, layout, copy);
    if (tried == FrameDrop::kNone) return tried;
    // A wrong CRC says more than a wrong length, which most candidates have.
    if (tried == FrameDrop::kCrc) drop = tried;
  }
  return drop;
}

absl::Status UnknownHere(const IntakeRules& rules, const FrameHeader& header) {
  const ErrorMetadata ids = {{"worker", std::string(rules.worker_id)},
                             {"layer", absl::StrCat(header.layer.value)},
                             {"epoch", absl::StrCat(header.epoch.value)}};
  if (rules.runtime == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                     absl::StrFormat("epoch %d is not bound to this attachment of worker %s; bind "
                                     "the plan's current epoch",
                                     header.epoch.value, rules.worker_id),
                     ids);
  }
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer,
                   absl::StrFormat("worker %s: epoch %d has no MoE layer %d", rules.worker_id,
                                   header.epoch.value, header.layer.value),
                   ids);
}

// Compares the header with what the attachment and the layer allow. These are refusals and not
// drops: the CRC has matched, so the peer meant what it sent and deserves the reason.
absl::Status CheckHeader(const IntakeRules& rules, const FrameHeader& header,
                         const LayerRuntime& layer) {
  const auto refuse = [](Reason reason, const std::string& what) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason, what);
  };
  if (header.mode != rules.mode) {
    return refuse(Reason::kBadRequest,
                  absl::StrFormat("a %s frame in a %s session", DispatchModeName(header.mode),
                                  DispatchModeName(rules.mode)));
  }
  if (!layer.Takes(header.format)) {
    return refuse(Reason::kBadDtype,
                  absl::StrFormat("layer %d: the plan does not allow %s rows", layer.layer.value,
                                  WireFormatName(header.format)));
  }
  // Fixed pairs let one credit stand for both slots, so neither side keeps a second free list.
  if (header.reply_slot != header.request_slot) {
    return refuse(Reason::kFrame, absl::StrFormat("request slot %d is answered in its own pair, "
                                                  "not in reply slot %d",
                                                  header.request_slot, header.reply_slot));
  }
  if (header.rows > rules.rows_max) {
    return refuse(Reason::kTooManyTokens,
                  absl::StrFormat("a chunk of %d rows, and the session's max_tokens allows %d",
                                  header.rows, rules.rows_max));
  }
  // Before anything runs: a result that cannot be sent would be computed in vain.
  if (LayoutOfResult(header.rows, rules.shape.hidden).frame_bytes > rules.reply_slot_bytes) {
    return refuse(Reason::kMessageTooLarge,
                  absl::StrFormat("the answer of %d rows does not fit into a reply slot of %d "
                                  "bytes",
                                  header.rows, rules.reply_slot_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckServable(const IntakeRules& rules, const FrameHeader& header,
                           std::span<const std::uint32_t> metadata, RequestIntake* intake) {
  SY_RETURN_IF_ERROR(CheckHeader(rules, header, *intake->layer));
  return ParseRequestMetadata(
      metadata, GeometryOf(header, rules.shape, intake->layer->local_slots()), &intake->view);
}

}  // namespace

std::size_t RequestRowsMax(std::size_t slot_bytes, const MoeShape& shape) {
  return slot_bytes / static_cast<std::size_t>(RowBytesOf(kBf16Format, shape.hidden).total());
}

std::size_t MetadataWordsMax(std::size_t slot_bytes, const MoeShape& shape) {
  const std::size_t rows = RequestRowsMax(slot_bytes, shape);
  // Per row: a token index, and a slot and a weight for each of top_k.
  const std::size_t normal = rows * (1 + 2 * static_cast<std::size_t>(shape.top_k));
  // A count for each local slot, of which a layer has at most `experts`; per row a token and a k.
  const std::size_t low_latency = static_cast<std::size_t>(shape.experts) + 2 * rows;
  return std::max(normal, low_latency);
}

RequestIntake TakeInRequest(const IntakeRules& rules, const IncomingFrame& frame,
                            std::span<std::uint32_t> copy) {
  const FrameHeader& header = *frame.header;
  RequestIntake intake;
  // The CRC is checked even if epoch or layer are unknown: a refusal must not be sent to noise.
  if (rules.runtime != nullptr) intake.layer = rules.runtime->FindLayer(header.layer);
  if (intake.layer == nullptr) {
    intake.drop = CheckWithUnknownSlots(frame, rules.shape, copy);
    if (intake.drop == FrameDrop::kNone) intake.refusal = UnknownHere(rules, header);
    return intake;
  }
  const FrameLayout layout =
      LayoutOfRequest(GeometryOf(header, rules.shape, intake.layer->local_slots()));
  intake.drop = CopyAndCheck(frame, layout, copy);
  if (intake.drop != FrameDrop::kNone) return intake;
  intake.refusal = CheckServable(
      rules, header, copy.first(layout.metadata_bytes / sizeof(std::uint32_t)), &intake);
  const bool on_device = frame.on_device != nullptr;
  const std::byte* slot = on_device ? frame.on_device : frame.payload.data() - kFrameHeaderBytes;
  intake.rows = slot + layout.rows_begin;
  intake.scales = slot + layout.scales_begin;
  return intake;
}

}  // namespace switchyard
