// The format of rows on the wire: the dtype of the values and the scales that go with them.
//
// A dtype says what one value is; a format adds the kind of scale and how many values share one, so
// that FP8 with FP32 scales (DeepEP, SM90) and FP8 with powers of two (DeepGEMM, SM100) are two
// formats of one dtype. Every dtype has one default format; the others must be requested by name.
//
// A short group is valid: the last one of a row holds the remaining values and has a scale like any
// other. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

#include "core/format/dtype.h"

namespace switchyard {

// The stored form of a scale. Wire values: append only.
enum class ScaleKind : std::uint8_t {
  kNone = 0,
  kF32 = 1,
  kUe8m0 = 2,  // 2^(byte - 127), core/format/fp8.h
  kE4m3 = 3,   // times a global scale in FP32, which does not travel with the rows
};

// A value of WireFormat::group: one scale for the whole row.
inline constexpr std::int32_t kGroupIsRow = -1;

// Compared as a whole: rows of a format that differs in any field cannot be decoded.
struct WireFormat {
  DispatchDtype dtype = DispatchDtype::kBf16;
  ScaleKind scale = ScaleKind::kNone;
  std::int32_t group = 0;  // consecutive values of a row that share a scale; 0: no scales

  friend bool operator==(const WireFormat&, const WireFormat&) = default;
};

inline constexpr WireFormat kBf16Format{DispatchDtype::kBf16, ScaleKind::kNone, 0};
inline constexpr WireFormat kFp8Format{DispatchDtype::kFp8, ScaleKind::kF32, 128};
inline constexpr WireFormat kFp8Ue8m0Format{DispatchDtype::kFp8, ScaleKind::kUe8m0, 128};
inline constexpr WireFormat kInt8Format{DispatchDtype::kInt8, ScaleKind::kF32, kGroupIsRow};
inline constexpr WireFormat kNvfp4Format{DispatchDtype::kNvfp4, ScaleKind::kE4m3, 16};

// The formats that have a name, the default of each dtype before its others.
struct NamedWireFormat {
  const char* name = nullptr;  // "bf16", "fp8", "fp8_ue8m0", "int8", "nvfp4"
  WireFormat format;
};
std::span<const NamedWireFormat> WireFormats();

// "unnamed" for a format that is not in the table.
absl::string_view WireFormatName(const WireFormat& format);
// nullopt for any other name.
std::optional<WireFormat> WireFormatFromName(absl::string_view name);

// The byte in a frame's header that names the format of its rows: the dtype, and in the upper four
// bits the kind of scales where it differs from the dtype's default format. Only formats of the
// table have one.
std::uint8_t WireFormatCode(const WireFormat& format);
// nullopt for a byte that no format has: such a frame is dropped, never guessed at.
std::optional<WireFormat> WireFormatFromCode(std::uint8_t code);

// The format of a dtype that no checkpoint or config refines.
WireFormat DefaultWireFormat(DispatchDtype dtype);

// The number of scales in a row of `hidden` > 0 values: ceil(hidden / group).
std::int64_t ScalesPerRow(const WireFormat& format, std::int64_t hidden);
// Bytes of one row of `hidden` > 0 values, for any format, named or not.
RowBytes RowBytesOf(const WireFormat& format, std::int64_t hidden);

}  // namespace switchyard
