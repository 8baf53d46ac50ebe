#include "model/quant/layout/quant_layout.h"

#include <cstddef>

#include "model/quant/layout/layout_lists.h"
#include "model/quant/layout/row_decoders.h"

namespace switchyard {
namespace internal {
namespace {

constexpr LayoutUse kUnquantized{QuantScheme::kNone, ActivationFormat::kBf16};
constexpr LayoutUse kFp8Block{QuantScheme::kFp8Block, ActivationFormat::kFp8Group};
constexpr LayoutUse kNvfp4{QuantScheme::kNvfp4, ActivationFormat::kNvfp4};
constexpr LayoutUse kW8A8{QuantScheme::kW8A8Int8, ActivationFormat::kInt8Row};

// The largest magnitudes of codes. INT8 and INT4 are two's complement, so -128 and -8 are the
// widest.
constexpr double kFp8Max = 448;
constexpr double kInt8Max = 128;
constexpr double kInt4Max = 8;

constexpr std::array<QuantLayoutInfo, static_cast<std::size_t>(kLastQuantLayout) + 1> kLayouts{{
    {.layout = QuantLayout::kBf16,
     .name = "bf16",
     .description = "unquantized BF16",
     .use = kUnquantized,
     .weight_bits = 16,
     .largest_code = 0,  // any finite number; there is no scale to multiply it by
     .decoder = {1, DecodeBf16},
     .scale_unit = ScaleUnit::kNone,
     .tensors = kBf16Tensors,
     .forbidden = kForbiddenInBf16},
    {.layout = QuantLayout::kFp8Block,
     .name = "fp8_block",
     .description = "FP8 with weight_scale_inv for each block",
     .use = kFp8Block,
     .weight_bits = 8,
     .largest_code = kFp8Max,
     .decoder = {1, DecodeE4m3},
     .scale_unit = ScaleUnit::kBlock,
     .tensors = kFp8BlockTensors,
     .forbidden = kForbiddenInQuantized},
    // compressed-tensors stores the same numbers as fp8_block under another name.
    {.layout = QuantLayout::kFp8BlockCompressed,
     .name = "compressed_tensors_fp8_block",
     .description = "FP8 with weight_scale for each block",
     .use = kFp8Block,
     .weight_bits = 8,
     .largest_code = kFp8Max,
     .decoder = {1, DecodeE4m3},
     .scale_unit = ScaleUnit::kBlock,
     .tensors = kFp8BlockCompressedTensors,
     .forbidden = kForbiddenInCompressed},
    {.layout = QuantLayout::kFp8Tensor,
     .name = "fp8_tensor",
     .description = "FP8 with one weight_scale",
     .use = {QuantScheme::kFp8TensorDynamic, ActivationFormat::kFp8Row},
     .static_use = LayoutUse{QuantScheme::kFp8TensorStatic, ActivationFormat::kFp8Static},
     .weight_bits = 8,
     .largest_code = kFp8Max,
     .decoder = {1, DecodeE4m3},
     .scale_unit = ScaleUnit::kTensor,
     .tensors = kFp8TensorTensors,
     .forbidden = kForbiddenInQuantized},
    {.layout = QuantLayout::kFp8Channel,
     .name = "compressed_tensors_fp8_channel",
     .description = "FP8 with weight_scale for each row",
     .use = {QuantScheme::kFp8Channel, ActivationFormat::kFp8Row},
     .weight_bits = 8,
     .largest_code = kFp8Max,
     .decoder = {1, DecodeE4m3},
     .scale_unit = ScaleUnit::kRow,
     .tensors = kFp8ChannelTensors,
     .forbidden = kForbiddenInCompressed},
    // ModelOpt's global scale is amax / (448 * 6), which weights are multiplied by;
    // compressed-tensors stores its reciprocal and divides.
    {.layout = QuantLayout::kNvfp4ModelOpt,
     .name = "modelopt_nvfp4",
     .description = "NVFP4 with weight_scale_2",
     .use = kNvfp4,
     .weight_bits = 4,
     .largest_code = 6,
     .decoder = {1, DecodeE2m1Pairs},
     .scale_unit = ScaleUnit::kGroup,
     .global_scale = GlobalScale::kMultiplies,
     .tensors = kNvfp4ModelOptTensors,
     .forbidden = kForbiddenInQuantized},
    {.layout = QuantLayout::kNvfp4Compressed,
     .name = "compressed_tensors_nvfp4",
     .description = "NVFP4 with weight_global_scale",
     .use = kNvfp4,
     .weight_bits = 4,
     .largest_code = 6,
     .decoder = {1, DecodeE2m1Pairs},
     .scale_unit = ScaleUnit::kGroup,
     .global_scale = GlobalScale::kDivides,
     .tensors = kNvfp4CompressedTensors,
     .forbidden = kForbiddenInQuantized},
    // W4AFP8 always has a stored scale of its inputs, so it needs no other use for static inputs.
    {.layout = QuantLayout::kW4Afp8,
     .name = "w4afp8",
     .description = "INT4 pairs with weight_scale_inv for each group",
     .use = {QuantScheme::kW4Afp8, ActivationFormat::kFp8Static},
     .weight_bits = 4,
     .largest_code = kInt4Max,
     .decoder = {1, DecodeInt4Pairs},
     .scale_unit = ScaleUnit::kGroup,
     .tensors = kW4Afp8Tensors,
     .forbidden = kForbiddenInQuantized},
    {.layout = QuantLayout::kInt8Channel,
     .name = "compressed_tensors_int8",
     .description = "INT8 with weight_scale for each row",
     .use = kW8A8,
     .weight_bits = 8,
     .largest_code = kInt8Max,
     .decoder = {1, DecodeInt8},
     .scale_unit = ScaleUnit::kRow,
     .tensors = kInt8ChannelTensors,
     .forbidden = kForbiddenInCompressed},
    {.layout = QuantLayout::kModelSlimW8A8,
     .name = "modelslim_w8a8",
     .description = "INT8 with scale and offset for each row",
     .use = kW8A8,
     .weight_bits = 8,
     .largest_code = kInt8Max,
     .decoder = {1, DecodeInt8},
     .scale_unit = ScaleUnit::kRow,
     .tensors = kModelSlimInt8Tensors,
     .forbidden = kForbiddenInQuantized},
    // Without groups a row has one scale; with groups the row's scale multiplies those of its
    // groups.
    {.layout = QuantLayout::kModelSlimW4A8,
     .name = "modelslim_w4a8",
     .description = "INT4, two rows in a byte",
     .use = {QuantScheme::kW4A8Int8, ActivationFormat::kInt8Row},
     .weight_bits = 4,
     .largest_code = kInt4Max,
     .decoder = {2, DecodeInt4RowPairs},
     .scale_unit = ScaleUnit::kRowAndGroup,
     .multiples = {.rows = 2},
     .tensors = kModelSlimW4A8Tensors,
     .forbidden = kForbiddenInQuantized},
    // msModelSlim stores W4A4 like W8A8, with a byte for each INT4.
    {.layout = QuantLayout::kModelSlimW4A4,
     .name = "modelslim_w4a4",
     .description = "INT4, one in a byte",
     .use = {QuantScheme::kW4A4Int4, ActivationFormat::kInt4Row},
     .weight_bits = 4,
     .largest_code = kInt4Max,
     .decoder = {1, DecodeInt8},
     .scale_unit = ScaleUnit::kRow,
     .int4_in_bytes = true,
     .tensors = kModelSlimInt8Tensors,
     .forbidden = kForbiddenInQuantized},
    {.layout = QuantLayout::kPackQuantized,
     .name = "compressed_tensors_int4",
     .description = "INT4, eight of a row in 32 bits, with weight_scale for each group",
     .use = {QuantScheme::kW4A16Int4, ActivationFormat::kBf16},
     .weight_bits = 4,
     .largest_code = kInt4Max,
     .decoder = {1, DecodeInt4Words},
     .scale_unit = ScaleUnit::kGroup,
     .scales_may_be_negative = true,
     .multiples = {.columns = 8},
     .tensors = kPackQuantizedTensors,
     .forbidden = kForbiddenInCompressed},
    // Eight rows share a word, so eight are decoded together.
    {.layout = QuantLayout::kAwq,
     .name = "awq",
     .description = "INT4, eight columns in 32 bits, transposed, with zero points",
     .use = {QuantScheme::kAwqInt4, ActivationFormat::kBf16},
     .weight_bits = 4,
     .largest_code = 15,  // code 15 with zero point 0
     .decoder = {8, DecodeAwqWords},
     .scale_unit = ScaleUnit::kGroupMajor,
     .scales_may_be_negative = true,
     .multiples = {.rows = 8},
     .tensors = kAwqTensors,
     .forbidden = kForbiddenInAwq},
}};

// Lookups index the table, so a row in the wrong place would describe another layout.
constexpr bool RowsStandAtTheirValues() {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    // The decoder's rows stand for its pointer, whose comparison is no constant expression in GCC
    // 12 under a sanitizer.
    if (static_cast<std::size_t>(kLayouts[i].layout) != i || kLayouts[i].decoder.rows == 0) {
      return false;
    }
  }
  return true;
}
static_assert(RowsStandAtTheirValues(),
              "the table needs one row for each QuantLayout, in the order of its values");

}  // namespace
}  // namespace internal

namespace {

const LayoutUse& UseOf(const ProjectionQuant& quant) {
  const QuantLayoutInfo& row = QuantLayoutInfoOf(quant.layout);
  // Only kFp8Tensor has two uses; elsewhere static inputs change nothing.
  return quant.static_inputs && row.static_use ? *row.static_use : row.use;
}

}  // namespace

const QuantLayoutInfo& QuantLayoutInfoOf(QuantLayout layout) {
  return internal::kLayouts[static_cast<std::size_t>(layout)];
}

std::span<const QuantLayoutInfo> AllQuantLayouts() { return internal::kLayouts; }

QuantScheme SchemeOf(const ProjectionQuant& quant) { return UseOf(quant).scheme; }

ActivationFormat ActivationFormatOf(const ProjectionQuant& quant) {
  const ActivationFormat format = UseOf(quant).activation;
  // Rows are rounded with the kind of scales that the weights have, as the fused kernels do.
  const bool to_powers = quant.power_of_two_scales && format == ActivationFormat::kFp8Group;
  return to_powers ? ActivationFormat::kFp8GroupPow2 : format;
}

std::int64_t GroupSizeOf(const ProjectionQuant& quant, std::int64_t columns) {
  return quant.group_size == 0 ? columns : quant.group_size;
}

}  // namespace switchyard
