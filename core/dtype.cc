#include "core/dtype.h"

#include <array>

namespace switchyard {
namespace {

struct DtypeRow {
  const char* name;
  std::int64_t bits;         // of one value
  std::int64_t group;        // values that share a scale; 0: none, -1: the whole row
  std::int64_t scale_bytes;  // of one scale
};

constexpr std::array<DtypeRow, 4> kRows{{
    {"bf16", 16, 0, 0},
    {"fp8", 8, 128, 4},
    {"int8", 8, -1, 4},
    {"nvfp4", 4, 16, 1},
}};

const DtypeRow& RowOf(DispatchDtype dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

absl::string_view DispatchDtypeName(DispatchDtype dtype) { return RowOf(dtype).name; }

std::optional<DispatchDtype> DispatchDtypeFromName(absl::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (name == kRows[i].name) return static_cast<DispatchDtype>(i);
  }
  return std::nullopt;
}

absl::string_view OutputDtypeName(OutputDtype dtype) {
  return dtype == OutputDtype::kBf16 ? "bf16" : "f32";
}

RowBytes RowBytesOf(DispatchDtype dtype, std::int64_t hidden) {
  const DtypeRow& row = RowOf(dtype);
  RowBytes bytes;
  bytes.data = (hidden * row.bits + 7) / 8;
  if (row.group < 0) bytes.scales = row.scale_bytes;
  if (row.group > 0) bytes.scales = (hidden + row.group - 1) / row.group * row.scale_bytes;
  return bytes;
}

}  // namespace switchyard
