// How the weights of one projection lie in a checkpoint: the on-disk spelling of a quant scheme.
//
// A layout is one row of the table in quant_layout.cc. The readers, checks and decoders of this
// folder and of model/experts act on the row's fields; none of them names a layout. The encoder of
// a row is in quantize/encode.cc, under the same key.
//
// core/quant_scheme.h says what experts compute with; several spellings of the same numbers are one
// scheme there and rows of their own here. N x K is [out, in] of the projection. The weight [n, k]
// is
//
//   code * scale            with `scale` by the row's ScaleUnit, and then
//   ... * or / global       where the row's GlobalScale says so
//
// and each of these products and quotients is one FP32 operation, rounded to nearest even.
//
// Sources: the checkpoints of DeepSeek-V3, Qwen3-FP8 and Kimi-K2.5, the readers of SGLang and vLLM,
// compressed-tensors, ModelOpt, msModelSlim and AutoAWQ. Plain data; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "core/activation_format.h"
#include "core/quant_scheme.h"
#include "model/quant/layout/layout_tensors.h"

namespace switchyard {

struct RawProjection;

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

// The weights that share an element of the tensor of role kScale.
enum class ScaleUnit : std::uint8_t {
  kNone,         // there are no scales
  kTensor,       // all
  kRow,          // a row: [N, 1]
  kBlock,        // 128 x 128: [ceil(N/128), ceil(K/128)]
  kGroup,        // a group of K: [N, K/g]
  kGroupMajor,   // the same, transposed: [K/g, N]
  kRowAndGroup,  // a row: [N, 1]; with groups, times kScaleSecond [N, K/g], the product rounded to
                 // F16, as NPU kernels compute it
};

// The effect of a global scale on weights. Static input scales are stored the same way round.
enum class GlobalScale : std::uint8_t {
  kNone,
  kMultiplies,
  kDivides,  // stored as the reciprocal
};

// Writes the codes of rows [first, first + RowDecoder::rows) as numbers, without any scale, to
// out[rows][K]. `first` is a multiple of `rows`.
struct RowDecoder {
  // Decoded together; more than 1 where one word holds codes of several rows. 0: none is given.
  std::int64_t rows = 0;
  void (*decode)(const RawProjection& projection, std::int64_t first, float* out) = nullptr;
};

// The numbers that sizes must be multiples of. Where scales are by group, K is a multiple of g too.
struct SizeMultiples {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

// The numbers that experts of a layout compute with.
struct LayoutUse {
  QuantScheme scheme = QuantScheme::kNone;
  // The rounding of rows in front of the projection. With power_of_two_scales, kFp8Group stands for
  // kFp8GroupPow2.
  ActivationFormat activation = ActivationFormat::kBf16;
};

// One row of the table.
struct QuantLayoutInfo {
  QuantLayout layout;
  const char* name;         // for tables and errors: "fp8_block", "modelopt_nvfp4" ...
  const char* description;  // for people
  LayoutUse use;
  std::optional<LayoutUse> static_use{};  // with static_inputs, where that differs
  int weight_bits;
  double largest_code;  // the largest magnitude of a code, less its zero point where it has one
  RowDecoder decoder;
  ScaleUnit scale_unit;
  GlobalScale global_scale = GlobalScale::kNone;
  // Tools that search the best symmetric INT4 give groups negative scales, to use the code -8
  // (AutoRound does).
  bool scales_may_be_negative = false;
  bool int4_in_bytes = false;  // each weight byte must hold a number in [-8, 7]
  SizeMultiples multiples{};
  std::span<const LayoutTensor> tensors;  // in the order in which a manifest hashes them
  // Suffixes that must be absent: tensors that would change what the weights mean.
  std::span<const char* const> forbidden;
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
// The rounding of rows in front of a projection of this layout.
ActivationFormat ActivationFormatOf(const ProjectionQuant& quant);
// Values of K that share a scale: `group_size`, or all `columns`.
std::int64_t GroupSizeOf(const ProjectionQuant& quant, std::int64_t columns);

}  // namespace switchyard
