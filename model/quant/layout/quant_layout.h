// How the weights of one projection lie in a checkpoint: the on-disk spelling of a quant scheme.
//
// core/quant_scheme.h says what experts compute with; several spellings of the same numbers are one
// scheme there and rows of their own here. Names, dtypes and shapes of a layout's tensors are in
// expected_tensors.h, the arithmetic in dequantize.h. N x K is [out, in] of the projection.
//
// Sources: the checkpoints of DeepSeek-V3, Qwen3-FP8 and Kimi-K2.5, the readers of SGLang and vLLM,
// compressed-tensors, ModelOpt, msModelSlim and AutoAWQ. Plain data; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

#include "core/quant_scheme.h"

namespace switchyard {

enum class QuantLayout : std::uint8_t {
  kBf16,
  kFp8Block,            // quant_method fp8: weight_scale_inv for each block
  kFp8BlockCompressed,  // compressed-tensors: the same numbers in weight_scale
  kFp8Tensor,           // one weight_scale; input_scale when static_inputs
  kFp8Channel,
  kNvfp4ModelOpt,
  kNvfp4Compressed,  // global scales are reciprocals of ModelOpt's
  kW4Afp8,
  kInt8Channel,
  kModelSlimW8A8,
  kModelSlimW4A8,  // two rows in a byte
  kModelSlimW4A4,  // one INT4 in a byte
  kPackQuantized,  // eight INT4 of a row in an I32, value + 8
  kAwq,            // transposed; eight columns in an I32, interleaved
};
inline constexpr QuantLayout kLastQuantLayout = QuantLayout::kAwq;

struct QuantLayoutInfo {
  QuantLayout layout;
  const char* name;         // for tables and errors: "fp8_block", "modelopt_nvfp4" ...
  const char* description;  // for people
};
const QuantLayoutInfo& QuantLayoutInfoOf(QuantLayout layout);
std::span<const QuantLayoutInfo> AllQuantLayouts();  // in the order of their values

// One projection: the layout and its parameters.
struct ProjectionQuant {
  QuantLayout layout = QuantLayout::kBf16;
  std::int32_t group_size = 0;          // values of K that share a scale; 0: all of them, or blocks
  std::array<std::int32_t, 2> block{};  // of FP8 block: rows, columns; {0, 0} for the others
  bool zero_points = false;             // weights are (q - z) * s
  bool static_inputs = false;           // the checkpoint holds a scale for the inputs
  bool power_of_two_scales = false;     // scale_fmt "ue8m0"

  friend bool operator==(const ProjectionQuant&, const ProjectionQuant&) = default;
};

// The scheme that experts of this layout compute with.
QuantScheme SchemeOf(const ProjectionQuant& quant);

}  // namespace switchyard
