#include "worker/transport/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/base/check.h"

namespace switchyard {
namespace {

constexpr std::size_t kErrorFixedBytes = 16;   // code, reason, row, text length
constexpr std::size_t kCrcAt = 60;             // the CRC is the header's last field
constexpr std::uint32_t kLastStatusCode = 16;  // UNAUTHENTICATED

constexpr std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

// Writes little-endian fields one after the other, independent of the machine's byte order.
template <typename T>
void Put(std::byte*& at, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    *at++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T Take(const std::byte*& at) {
  static_assert(std::is_unsigned_v<T>);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(*at++) << (8 * i);
  }
  return static_cast<T>(value);
}

// The CRC does not cover rows and scales: they are most of the bytes, and the memory or the TCP
// connection that carries them has its own checks. Header and metadata decide where rows go, so a
// fault there would be silent.
std::uint32_t FrameCrc(std::span<const std::byte> header, std::span<const std::byte> metadata) {
  constexpr std::array<std::byte, sizeof(std::uint32_t)> kZeroField{};
  const std::uint32_t crc = Crc32c(Crc32c(0, header.first(kCrcAt)), kZeroField);
  return Crc32c(crc, metadata);
}

}  // namespace

FrameLayout LayoutOfRequest(const RequestGeometry& geometry) {
  const auto rows = static_cast<std::size_t>(geometry.rows);
  const RowBytes row = RowBytesOf(geometry.format, geometry.hidden);

  // Each part starts at a multiple of kFrameAlign, so that kernels can read rows in place.
  FrameLayout layout;
  // The four bytes of a token's index, then an (index, weight) pair of eight bytes for each expert.
  layout.metadata_bytes = geometry.mode == DispatchMode::kNormal
                              ? rows * (4 + static_cast<std::size_t>(geometry.top_k) * 8)
                              : static_cast<std::size_t>(geometry.local_slots) * 4 + rows * 8;
  layout.scales_begin = AlignUp(kFrameHeaderBytes + layout.metadata_bytes);
  layout.rows_begin = AlignUp(layout.scales_begin + rows * static_cast<std::size_t>(row.scales));
  layout.frame_bytes = AlignUp(layout.rows_begin + rows * static_cast<std::size_t>(row.data));
  return layout;
}

FrameLayout LayoutOfResult(std::uint32_t rows, std::int32_t hidden) {
  const auto row = static_cast<std::size_t>(RowBytesOf(kBf16Format, hidden).data);
  FrameLayout layout;
  layout.scales_begin = kFrameHeaderBytes;
  layout.rows_begin = kFrameHeaderBytes;
  layout.frame_bytes = AlignUp(kFrameHeaderBytes + rows * row);
  return layout;
}

// An error has neither scales nor rows, so their offsets are the end of the frame.
FrameLayout LayoutOfError(std::size_t text_bytes) {
  FrameLayout layout;
  layout.metadata_bytes = kErrorFixedBytes + std::min(text_bytes, kErrorTextMax);
  layout.frame_bytes = AlignUp(kFrameHeaderBytes + layout.metadata_bytes);
  layout.scales_begin = layout.frame_bytes;
  layout.rows_begin = layout.frame_bytes;
  return layout;
}

void EncodeHeader(const FrameHeader& header, std::span<const std::byte> metadata,
                  HeaderBytes* out) {
  std::byte* at = out->data();
  Put(at, kFrameMagic);
  Put(at, kFrameVersion);
  Put(at, static_cast<std::uint8_t>(header.kind));
  Put(at, static_cast<std::uint8_t>(header.mode));
  Put(at, WireFormatCode(header.format));
  Put(at, header.cookie.value);
  Put(at, header.epoch.value);
  Put(at, header.step.value);
  Put(at, header.attachment.value);
  Put(at, header.source_incarnation);
  Put(at, static_cast<std::uint16_t>(header.layer.value));
  Put(at, header.chunk);
  Put(at, header.chunks);
  Put(at, header.attempt);
  Put(at, header.flags);
  Put(at, header.rows);
  Put(at, header.request_slot);
  Put(at, header.reply_slot);
  Put(at, header.payload_bytes);
  Put(at, FrameCrc(*out, metadata));
}

FrameDrop DecodeHeader(std::span<const std::byte> bytes, FrameHeader* out) {
  if (bytes.size() < kFrameHeaderBytes) return FrameDrop::kTruncated;
  const std::byte* at = bytes.data();
  if (Take<std::uint32_t>(at) != kFrameMagic) return FrameDrop::kMagic;
  if (Take<std::uint8_t>(at) != kFrameVersion) return FrameDrop::kVersion;
  const auto kind = Take<std::uint8_t>(at);
  const auto mode = Take<std::uint8_t>(at);
  const std::optional<WireFormat> format = WireFormatFromCode(Take<std::uint8_t>(at));
  // An enum outside its range would be undefined behavior after the cast, so all are checked first.
  if (kind < static_cast<std::uint8_t>(FrameKind::kRequest) ||
      kind > static_cast<std::uint8_t>(FrameKind::kError) ||
      mode > static_cast<std::uint8_t>(DispatchMode::kLowLatency) || !format.has_value()) {
    return FrameDrop::kField;
  }
  out->kind = static_cast<FrameKind>(kind);
  out->mode = static_cast<DispatchMode>(mode);
  out->format = *format;
  // Fields are read in the order in which EncodeHeader writes them.
  out->cookie.value = Take<std::uint64_t>(at);
  out->epoch.value = Take<std::uint64_t>(at);
  out->step.value = Take<std::uint64_t>(at);
  out->attachment.value = Take<std::uint32_t>(at);
  out->source_incarnation = Take<std::uint32_t>(at);
  out->layer.value = Take<std::uint16_t>(at);
  out->chunk = Take<std::uint16_t>(at);
  out->chunks = Take<std::uint16_t>(at);
  out->attempt = Take<std::uint8_t>(at);
  out->flags = Take<std::uint8_t>(at);
  out->rows = Take<std::uint32_t>(at);
  out->request_slot = Take<std::uint16_t>(at);
  out->reply_slot = Take<std::uint16_t>(at);
  out->payload_bytes = Take<std::uint32_t>(at);
  return FrameDrop::kNone;
}

FrameDrop CheckCrc(const HeaderBytes& bytes, std::span<const std::byte> metadata) {
  const std::byte* at = bytes.data() + kCrcAt;
  return Take<std::uint32_t>(at) == FrameCrc(bytes, metadata) ? FrameDrop::kNone : FrameDrop::kCrc;
}

std::size_t EncodeErrorBody(const ErrorBody& body, std::span<std::byte> out) {
  const std::size_t text_bytes = std::min(body.text.size(), kErrorTextMax);
  SY_CHECK(out.size() >= kErrorFixedBytes + text_bytes, "no room for the body of an error frame");
  std::byte* at = out.data();
  Put(at, static_cast<std::uint32_t>(body.code));
  Put(at, body.reason);
  Put(at, body.row);
  Put(at, static_cast<std::uint32_t>(text_bytes));
  std::memcpy(at, body.text.data(), text_bytes);
  return kErrorFixedBytes + text_bytes;
}

FrameDrop DecodeErrorBody(std::span<const std::byte> metadata, ErrorBody* out) {
  if (metadata.size() < kErrorFixedBytes) return FrameDrop::kTruncated;
  const std::byte* at = metadata.data();
  const auto code = Take<std::uint32_t>(at);
  const auto reason = Take<std::uint32_t>(at);
  const auto row = Take<std::uint32_t>(at);
  const auto text_bytes = Take<std::uint32_t>(at);
  // Code 0 would be an error that reports success.
  if (code == 0 || code > kLastStatusCode) return FrameDrop::kField;
  // The length comes from the peer: bound it before using it.
  if (text_bytes > kErrorTextMax) return FrameDrop::kLength;
  if (metadata.size() - kErrorFixedBytes < text_bytes) return FrameDrop::kTruncated;
  out->code = static_cast<absl::StatusCode>(code);
  out->reason = reason;
  out->row = row;
  out->text.assign(reinterpret_cast<const char*>(at), text_bytes);
  return FrameDrop::kNone;
}

absl::string_view FrameDropName(FrameDrop drop) {
  switch (drop) {
    case FrameDrop::kNone:
      return "none";
    case FrameDrop::kMagic:
      return "magic";
    case FrameDrop::kVersion:
      return "version";
    case FrameDrop::kField:
      return "field";
    case FrameDrop::kAttachment:
      return "attachment";
    case FrameDrop::kCookie:
      return "cookie";
    case FrameDrop::kLength:
      return "length";
    case FrameDrop::kCrc:
      return "crc";
    case FrameDrop::kSlot:
      return "slot";
    case FrameDrop::kTruncated:
      return "truncated";
  }
  SY_UNREACHABLE("a frame drop that is none");
}

}  // namespace switchyard
