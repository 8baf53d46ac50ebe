// Frames: the layout of a chunk of rows in a ring, and the rules for dropping frames unread.
//
//   0        64            +metadata        +scales         +rows
//   | header | metadata    | scales         | rows          |      each part padded to 64 bytes
//
// Header, little-endian, in order: magic u32; version, kind, mode, format u8; cookie, epoch, step
// u64; attachment, source incarnation (low 32 bits) u32; layer, chunk, chunks u16; attempt, flags
// u8; rows u32; request_slot, reply_slot u16; payload_bytes u32; CRC32C u32 over the header (this
// field zero) and the metadata without its padding.
//
// Metadata of a request: `normal`: rows x {token u32, top_k x (local slot i32, -1 = not here;
// weight f32)}; `low_latency`: local_slots x count u32, then rows x {token u32, k index u32}, rows
// grouped by slot in ascending order. A result has no metadata; its rows are in the request's
// order. Metadata of an error: {gRPC code u32, reason u32, row u32 or 2^32-1, text length u32, text
// <= 256 B}; its length is read from a copy and bounded before the CRC is checked.
//
// A receiver copies the header out of shared memory and reads only the copy, because the peer could
// change the original between a check and its use. Pure; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/dispatch_config.h"
#include "core/format/wire_format.h"
#include "core/ids.h"

namespace switchyard {

// Constants of the wire format. Changing one requires a new kFrameVersion, because peers of both
// versions can meet during an upgrade.
inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::size_t kFrameAlign = 64;
inline constexpr std::uint32_t kFrameMagic = 0x31465953;  // "SYF1"
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kErrorTextMax = 256;
// A flag of requests and of the results that answer them: rows and scales stand in device memory
// (RingOffer::device_memory), where they would stand in the slot.
inline constexpr std::uint8_t kRowsOnDevice = 1;
inline constexpr std::uint32_t kNoRow = 0xffffffffU;

// A request carries rows to the experts; a result or an error answers it.
enum class FrameKind : std::uint8_t { kRequest = 1, kResult = 2, kError = 3 };

// The decoded header of a frame, without magic, version and CRC.
struct FrameHeader {
  FrameKind kind = FrameKind::kRequest;
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format = kBf16Format;  // on the wire: WireFormatCode
  Cookie cookie;
  Epoch epoch;
  StepId step;
  AttachmentId attachment;  // assigned by the receiver
  std::uint32_t source_incarnation = 0;
  LayerId layer;  // 0 .. 65535 on the wire
  std::uint16_t chunk = 0;
  std::uint16_t chunks = 1;
  std::uint8_t attempt = 0;
  std::uint8_t flags = 0;
  std::uint32_t rows = 0;
  std::uint16_t request_slot = 0;
  std::uint16_t reply_slot = 0;
  std::uint32_t payload_bytes = 0;  // everything after the header, including padding
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// The header with its CRC as it is on the wire.
using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

// Offsets of the parts of a frame, in bytes from its start. Computed from header fields and the
// plan; no offset travels on the wire, so a peer cannot send a wrong one.
struct FrameLayout {
  std::size_t metadata_bytes = 0;  // without padding
  std::size_t metadata_begin = kFrameHeaderBytes;
  std::size_t scales_begin = 0;
  std::size_t rows_begin = 0;
  std::size_t frame_bytes = 0;
  [[nodiscard]] std::uint32_t payload_bytes() const {
    return static_cast<std::uint32_t>(frame_bytes - kFrameHeaderBytes);
  }
};
// The sizes that determine the layout of a request.
struct RequestGeometry {
  DispatchMode mode = DispatchMode::kNormal;
  WireFormat format = kBf16Format;
  std::uint32_t rows = 0;
  std::int32_t hidden = 0;
  std::int32_t top_k = 0;
  std::int32_t local_slots = 0;  // experts of the layer on the receiving worker
};
// REQUIRES: the numbers of a valid plan; negative ones are not checked.
FrameLayout LayoutOfRequest(const RequestGeometry& geometry);
FrameLayout LayoutOfResult(std::uint32_t rows, std::int32_t hidden);  // BF16 rows
FrameLayout LayoutOfError(std::size_t text_bytes);

// CRC32C (Castagnoli, RFC 3720); uses SSE4.2 if the CPU has it. Start with `crc` 0. To continue
// over a second piece, pass the result for the first one.
std::uint32_t Crc32c(std::uint32_t crc, std::span<const std::byte> data);

// Writes `header` and the CRC over the header and `metadata`.
void EncodeHeader(const FrameHeader& header, std::span<const std::byte> metadata, HeaderBytes* out);

// The reason for dropping a frame without an answer. Transports count drops by reason.
enum class FrameDrop : std::uint8_t {
  kNone = 0,
  kMagic = 1,
  kVersion = 2,
  kField = 3,  // kind or mode outside its enum, or an unknown format
  kAttachment = 4,
  kCookie = 5,
  kLength = 6,  // payload_bytes exceeds the slot or differs from the computed size
  kCrc = 7,
  kSlot = 8,       // request_slot or reply_slot outside the ring, or in use
  kTruncated = 9,  // fewer bytes than a header or than payload_bytes
};
inline constexpr std::size_t kFrameDropCount = 10;
// Names for status output, e.g. "crc".
absl::string_view FrameDropName(FrameDrop drop);

// Checks magic, version and enums. Does not check the CRC, which needs the metadata's length.
FrameDrop DecodeHeader(std::span<const std::byte> bytes, FrameHeader* out);
// Checks the CRC in `bytes` against the header and the metadata.
FrameDrop CheckCrc(const HeaderBytes& bytes, std::span<const std::byte> metadata);

// The content of an error frame.
struct ErrorBody {
  absl::StatusCode code = absl::StatusCode::kInternal;
  std::uint32_t reason = 0;
  std::uint32_t row = kNoRow;
  std::string text;
};
// Returns the number of bytes written. Cuts the text at kErrorTextMax. `out` must have room for the
// metadata of LayoutOfError.
std::size_t EncodeErrorBody(const ErrorBody& body, std::span<std::byte> out);
FrameDrop DecodeErrorBody(std::span<const std::byte> metadata, ErrorBody* out);

}  // namespace switchyard
