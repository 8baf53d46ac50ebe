#include "worker/source/p2p/reply_frame.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace switchyard {
namespace {

constexpr std::size_t kErrorFixedBytes = 16;  // code, reason, row, text length

}  // namespace

FrameDrop ReadErrorFrame(const HeaderBytes& raw, std::span<const std::byte> payload,
                         ErrorBody* out) {
  // Copied before anything is checked: the worker can still write into a mapped ring, so only the
  // copy stays what was checked.
  std::array<std::byte, kErrorFixedBytes + kErrorTextMax> copy{};
  const std::size_t bytes = std::min(payload.size(), copy.size());
  std::copy_n(payload.begin(), bytes, copy.begin());
  // Lengths before the CRC: they say which bytes it covers.
  if (bytes < kErrorFixedBytes) return FrameDrop::kLength;
  std::uint32_t text_bytes = 0;
  std::memcpy(&text_bytes, copy.data() + 12, sizeof(text_bytes));
  if (text_bytes > bytes - kErrorFixedBytes) return FrameDrop::kLength;
  const std::span<const std::byte> metadata =
      std::span<const std::byte>(copy).first(kErrorFixedBytes + text_bytes);
  if (const FrameDrop drop = CheckCrc(raw, metadata); drop != FrameDrop::kNone) return drop;
  return DecodeErrorBody(metadata, out);
}

absl::Status StatusOfError(const ErrorBody& body, const Step& step, std::uint32_t chunk) {
  const Attachment& attachment = step.AttachmentOf(chunk);
  ErrorMetadata metadata{{"worker", attachment.worker.id},
                         {"layer", absl::StrCat(step.layer().value)},
                         {"epoch", absl::StrCat(step.bound_plan()->plan.epoch.value)}};
  const auto rows = step.chunk_plan().RowsOf(step.chunk_plan().chunks()[chunk]);
  // The worker counts rows within the chunk; the caller knows tokens.
  if (body.row < rows.size()) metadata.emplace_back("row", absl::StrCat(rows[body.row].token));
  // A worker of a later version may send a reason that this source does not know.
  return MakeError(body.code, ReasonFromNumber(body.reason).value_or(Reason::kInternal),
                   absl::StrFormat("worker %s, layer %d: %s", attachment.worker.id,
                                   step.layer().value, body.text),
                   metadata);
}

absl::Status WorkerError(Reason reason, const Step& step, const Attachment& attachment,
                         absl::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable, reason,
                   absl::StrFormat("worker %s, layer %d, step %d: %s", attachment.worker.id,
                                   step.layer().value, step.id().value, what),
                   {{"worker", attachment.worker.id},
                    {"layer", absl::StrCat(step.layer().value)},
                    {"step", absl::StrCat(step.id().value)},
                    {"epoch", absl::StrCat(step.bound_plan()->plan.epoch.value)}});
}

}  // namespace switchyard
