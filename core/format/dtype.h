// The dtypes in which rows cross the network, and the bytes of a row in each.
//
// Sizes are those of the wire (data plus scales) in the dtype's default format; the others are in
// core/format/wire_format.h.
// Source of the layouts: OCP FP8 (E4M3), 1x128 group scales of DeepEP, NVFP4 1x16 of CUDA.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace switchyard {

// The encoding of rows of hidden states between source and worker. Wire values: append only.
enum class DispatchDtype : std::uint8_t {
  kBf16 = 0,
  kFp8 = 1,    // E4M3, one FP32 scale for each 128 values
  kInt8 = 2,   // per token, one FP32 scale
  kNvfp4 = 3,  // E2M1, one E4M3 scale for each 16 values, one global FP32 scale
};

// The dtype in which the caller receives y.
enum class OutputDtype : std::uint8_t { kBf16 = 0, kF32 = 1 };

absl::string_view DispatchDtypeName(DispatchDtype dtype);  // "bf16", "fp8", "int8", "nvfp4"
// nullopt for any other name, "auto" included.
std::optional<DispatchDtype> DispatchDtypeFromName(absl::string_view name);
absl::string_view OutputDtypeName(OutputDtype dtype);  // "bf16", "f32"

// Bytes of one row of `hidden` values: data and scales apart. `hidden` > 0.
struct RowBytes {
  std::int64_t data = 0;
  std::int64_t scales = 0;
  [[nodiscard]] std::int64_t total() const { return data + scales; }
};
// In the default format of `dtype`.
RowBytes RowBytesOf(DispatchDtype dtype, std::int64_t hidden);

}  // namespace switchyard
