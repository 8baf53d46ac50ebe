#include "model/quant/layout/quant_layout.h"

namespace switchyard {
namespace {

constexpr std::array<QuantLayoutInfo, static_cast<std::size_t>(kLastQuantLayout) + 1> kRows{{
    {QuantLayout::kBf16, "bf16", "unquantized BF16"},
    {QuantLayout::kFp8Block, "fp8_block", "FP8 with weight_scale_inv for each block"},
    {QuantLayout::kFp8BlockCompressed, "compressed_tensors_fp8_block",
     "FP8 with weight_scale for each block"},
    {QuantLayout::kFp8Tensor, "fp8_tensor", "FP8 with one weight_scale"},
    {QuantLayout::kFp8Channel, "compressed_tensors_fp8_channel",
     "FP8 with weight_scale for each row"},
    {QuantLayout::kNvfp4ModelOpt, "modelopt_nvfp4", "NVFP4 with weight_scale_2"},
    {QuantLayout::kNvfp4Compressed, "compressed_tensors_nvfp4", "NVFP4 with weight_global_scale"},
    {QuantLayout::kW4Afp8, "w4afp8", "INT4 pairs with weight_scale_inv for each group"},
    {QuantLayout::kInt8Channel, "compressed_tensors_int8", "INT8 with weight_scale for each row"},
    {QuantLayout::kModelSlimW8A8, "modelslim_w8a8", "INT8 with scale and offset for each row"},
    {QuantLayout::kModelSlimW4A8, "modelslim_w4a8", "INT4, two rows in a byte"},
    {QuantLayout::kModelSlimW4A4, "modelslim_w4a4", "INT4, one in a byte"},
    {QuantLayout::kPackQuantized, "compressed_tensors_int4",
     "INT4, eight of a row in 32 bits, with weight_scale for each group"},
    {QuantLayout::kAwq, "awq", "INT4, eight columns in 32 bits, transposed, with zero points"},
}};

}  // namespace

const QuantLayoutInfo& QuantLayoutInfoOf(QuantLayout layout) {
  return kRows[static_cast<std::size_t>(layout)];
}

std::span<const QuantLayoutInfo> AllQuantLayouts() { return kRows; }

QuantScheme SchemeOf(const ProjectionQuant& quant) {
  switch (quant.layout) {
    case QuantLayout::kBf16:
      return QuantScheme::kNone;
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
      return QuantScheme::kFp8Block;
    case QuantLayout::kFp8Tensor:
      return quant.static_inputs ? QuantScheme::kFp8TensorStatic : QuantScheme::kFp8TensorDynamic;
    case QuantLayout::kFp8Channel:
      return QuantScheme::kFp8Channel;
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return QuantScheme::kNvfp4;
    case QuantLayout::kW4Afp8:
      return QuantScheme::kW4Afp8;
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
      return QuantScheme::kW8A8Int8;
    case QuantLayout::kModelSlimW4A8:
      return QuantScheme::kW4A8Int8;
    case QuantLayout::kModelSlimW4A4:
      return QuantScheme::kW4A4Int4;
    case QuantLayout::kPackQuantized:
      return QuantScheme::kW4A16Int4;
    case QuantLayout::kAwq:
      return QuantScheme::kAwqInt4;
  }
  return QuantScheme::kNone;
}

}  // namespace switchyard
