// The rounding that a quantized expert kernel applies to the rows of a projection before it
// multiplies them.
//
// core/quant_scheme.h says how coarse a scheme is; this header says which numbers a row becomes.
// Rows are BF16 before and after: a value is encoded, decoded and rounded to BF16.
//
// Every scale belongs to one row or to the whole layer, never to the rows that happen to be
// computed together, so a row's result does not depend on the rest of its batch. For that reason
// "FP8, one measured scale for the tensor" is done here with one scale for each row.
//
// Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

#include "core/quant_scheme.h"

namespace switchyard {

// Formulas of the first six: worker/device/cpu/codec/codec_kernels.h; x: a value, amax: the largest
// |x|.
enum class ActivationFormat : std::uint8_t {
  kBf16 = 0,          // unchanged
  kFp8Group = 1,      // E4M3, FP32 scale for each 128
  kFp8GroupPow2 = 2,  // E4M3, power of two for each 128 (scale_fmt "ue8m0")
  kInt8Row = 3,       // INT8, FP32 scale for the row
  kNvfp4 = 4,         // E2M1, E4M3 scale for each 16, relative to `scale`
  kFp8Row = 5,        // amax' = max(1e-4, amax); e4m3(x * (448 / amax')) * (amax' / 448)
  kFp8Static = 6,     // e4m3(x / scale) * scale, saturating
  kInt4Row = 7,       // s = amax / 7; clamp(round(x / s), -8, 7) * s, ties to even; zeros stay
};
// For tables that must have a row for each.
inline constexpr ActivationFormat kLastActivationFormat = ActivationFormat::kInt4Row;
absl::string_view ActivationFormatName(ActivationFormat format);  // "bf16", "fp8_group", ...
// Every format, in the order of the values.
std::span<const ActivationFormat> AllActivationFormats();

// The formats that experts of `scheme` may apply; empty when their rows stay BF16.
std::span<const ActivationFormat> ActivationFormatsOf(QuantScheme scheme);

// A format with the number that it needs; compared to share kernels and codecs.
struct ActivationSpec {
  ActivationFormat format = ActivationFormat::kBf16;
  // kFp8Static: the checkpoint's input scale. kNvfp4: the global scale, 1 / the input scale of
  // ModelOpt (core/format/nvfp4_scale.h). 1 for the others.
  float scale = 1.0F;

  friend bool operator==(const ActivationSpec&, const ActivationSpec&) = default;
};

}  // namespace switchyard
