#include "core/format/dtype.h"

#include <array>

#include "core/format/wire_format.h"

namespace switchyard {
namespace {

constexpr std::array<const char*, 4> kNames{"bf16", "fp8", "int8", "nvfp4"};

}  // namespace

absl::string_view DispatchDtypeName(DispatchDtype dtype) {
  return kNames[static_cast<std::size_t>(dtype)];
}

std::optional<DispatchDtype> DispatchDtypeFromName(absl::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<DispatchDtype>(i);
  }
  return std::nullopt;
}

absl::string_view OutputDtypeName(OutputDtype dtype) {
  return dtype == OutputDtype::kBf16 ? "bf16" : "f32";
}

RowBytes RowBytesOf(DispatchDtype dtype, std::int64_t hidden) {
  return RowBytesOf(DefaultWireFormat(dtype), hidden);
}

}  // namespace switchyard
