#include "core/format/wire_format.h"

#include <array>

#include "core/base/check.h"

namespace switchyard {
namespace {

// The default of a dtype is its first row.
constexpr auto kFormats = std::to_array<NamedWireFormat>({
    {"bf16", kBf16Format},
    {"fp8", kFp8Format},
    {"fp8_ue8m0", kFp8Ue8m0Format},
    {"int8", kInt8Format},
    {"nvfp4", kNvfp4Format},
});

constexpr std::int64_t BytesOf(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kNone:
      return 0;
    case ScaleKind::kF32:
      return 4;
    case ScaleKind::kUe8m0:
    case ScaleKind::kE4m3:
      return 1;
  }
  SY_UNREACHABLE("a scale kind that is none");
}

constexpr std::int64_t BitsOf(DispatchDtype dtype) {
  switch (dtype) {
    case DispatchDtype::kBf16:
      return 16;
    case DispatchDtype::kFp8:
    case DispatchDtype::kInt8:
      return 8;
    case DispatchDtype::kNvfp4:
      return 4;
  }
  SY_UNREACHABLE("a dispatch dtype that is none");
}

}  // namespace

std::span<const NamedWireFormat> WireFormats() { return kFormats; }

absl::string_view WireFormatName(const WireFormat& format) {
  for (const NamedWireFormat& row : kFormats) {
    if (format == row.format) return row.name;
  }
  // Not an error: a text about a format that cannot be sent still has to be written.
  return "unnamed";
}

std::optional<WireFormat> WireFormatFromName(absl::string_view name) {
  for (const NamedWireFormat& row : kFormats) {
    if (name == row.name) return row.format;
  }
  return std::nullopt;
}

// The default kind of scales is 0, so the codes of dtypes from before there were formats still
// hold.
std::uint8_t WireFormatCode(const WireFormat& format) {
  const bool by_default = format.scale == DefaultWireFormat(format.dtype).scale;
  const auto scale = by_default ? 0U : static_cast<std::uint32_t>(format.scale);
  return static_cast<std::uint8_t>(scale << 4U | static_cast<std::uint32_t>(format.dtype));
}

std::optional<WireFormat> WireFormatFromCode(std::uint8_t code) {
  for (const NamedWireFormat& row : kFormats) {
    if (code == WireFormatCode(row.format)) return row.format;
  }
  return std::nullopt;
}

WireFormat DefaultWireFormat(DispatchDtype dtype) {
  for (const NamedWireFormat& row : kFormats) {
    if (row.format.dtype == dtype) return row.format;
  }
  return {.dtype = dtype};
}

std::int64_t ScalesPerRow(const WireFormat& format, std::int64_t hidden) {
  if (format.group == 0) return 0;
  if (format.group < 0) return 1;
  return (hidden + format.group - 1) / format.group;
}

RowBytes RowBytesOf(const WireFormat& format, std::int64_t hidden) {
  // An odd number of 4-bit values leaves the last nibble unused.
  return {.data = (hidden * BitsOf(format.dtype) + 7) / 8,
          .scales = ScalesPerRow(format, hidden) * BytesOf(format.scale)};
}

}  // namespace switchyard
