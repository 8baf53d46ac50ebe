// Implementation of quant_layout.h: the tensors of each layout, below "<module>.", and those that
// must be absent. For quant_layout.cc only; everybody else reads QuantLayoutInfo.
//
// BF16 experts may also be packed, all of a layer in one tensor; layer_experts.cc finds them there.
// Constant data; thread-safe.
#pragma once

#include "model/quant/layout/layout_tensors.h"

namespace switchyard::internal {

using Role = TensorRole;
using Dtype = TensorDtype;

inline constexpr Dtype kBf16Only[] = {Dtype::kBf16};
inline constexpr Dtype kF32Only[] = {Dtype::kF32};
inline constexpr Dtype kE4m3Only[] = {Dtype::kF8E4m3};
inline constexpr Dtype kU8Only[] = {Dtype::kU8};
inline constexpr Dtype kI8Only[] = {Dtype::kI8};
inline constexpr Dtype kI32Only[] = {Dtype::kI32};
// Any of these dtypes may be stored; they are widened to FP32 when read.
inline constexpr Dtype kFloats[] = {Dtype::kF32, Dtype::kBf16};
inline constexpr Dtype kFloatsOrPowers[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF8E8m0};
inline constexpr Dtype kFloatsOrF16[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
inline constexpr Dtype kHalves[] = {Dtype::kF16, Dtype::kBf16};
inline constexpr Dtype kInts[] = {Dtype::kI64, Dtype::kI32};

using enum Length;
using enum Presence;

// The only layout with a bias.
inline constexpr LayoutTensor kBf16Tensors[] = {
    {Role::kWeight, "weight", kBf16Only, {kRows, kColumns}},
    {Role::kBias, "bias", kBf16Only, {kRows}, kAlways, false}};

// DeepSeek-V3 and Qwen3-FP8. "inv" or not, weights are multiplied by the scale. Checkpoints with
// scale_fmt ue8m0 may store each scale in one byte.
inline constexpr LayoutTensor kFp8BlockTensors[] = {
    {Role::kWeight, "weight", kE4m3Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale_inv", kFloats, {kRowBlocks, kColumnBlocks}, kWithFp32Scales},
    {Role::kScale,
     "weight_scale_inv",
     kFloatsOrPowers,
     {kRowBlocks, kColumnBlocks},
     kWithPowerOfTwoScales}};

// compressed-tensors' name for the same scales.
inline constexpr LayoutTensor kFp8BlockCompressedTensors[] = {
    {Role::kWeight, "weight", kE4m3Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats, {kRowBlocks, kColumnBlocks}}};

// quant_method fp8 without blocks, and ModelOpt's FP8, which always has input scales.
inline constexpr LayoutTensor kFp8TensorTensors[] = {
    {Role::kWeight, "weight", kE4m3Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats},
    {Role::kInputScale, "input_scale", kFloats, {}, kWithStaticInputs}};

// One scale for each output; inputs are measured, so there is no input scale.
inline constexpr LayoutTensor kFp8ChannelTensors[] = {
    {Role::kWeight, "weight", kE4m3Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats, {kRows, kOne}}};

// Two E2M1 in a byte, even k in the low nibble. The input scale is required: rows that travel as
// NVFP4 are encoded relative to it.
inline constexpr LayoutTensor kNvfp4ModelOptTensors[] = {
    {Role::kWeight, "weight", kU8Only, {kRows, kHalfColumns}},
    {Role::kScale, "weight_scale", kE4m3Only, {kRows, kGroups}},
    {Role::kGlobalScale, "weight_scale_2", kF32Only},
    {Role::kInputScale, "input_scale", kF32Only}};

// The same codes; both global scales are the reciprocals of ModelOpt's.
inline constexpr LayoutTensor kNvfp4CompressedTensors[] = {
    {Role::kWeight, "weight_packed", kU8Only, {kRows, kHalfColumns}},
    {Role::kScale, "weight_scale", kE4m3Only, {kRows, kGroups}},
    {Role::kGlobalScale, "weight_global_scale", kF32Only},
    {Role::kInputScale, "input_global_scale", kF32Only}};

// Two INT4 in a byte, even k in the low nibble, two's complement.
inline constexpr LayoutTensor kW4Afp8Tensors[] = {
    {Role::kWeight, "weight", kI8Only, {kRows, kHalfColumns}},
    {Role::kScale, "weight_scale_inv", kFloats, {kRows, kGroups}},
    {Role::kInputScale, "input_scale", kFloats}};

// compressed-tensors' W8A8.
inline constexpr LayoutTensor kInt8ChannelTensors[] = {
    {Role::kWeight, "weight", kI8Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats, {kRows, kOne}}};

// W8A8, and W4A4 with one INT4 in a byte. msModelSlim writes offsets even for symmetric weights,
// which are the only ones that are served: they must be zero.
inline constexpr LayoutTensor kModelSlimInt8Tensors[] = {
    {Role::kWeight, "weight", kI8Only, {kRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats, {kRows, kOne}},
    {Role::kOffset, "weight_offset", kFloats, {kRows, kOne}}};

// Two rows in a byte, the even one in the low nibble. Weights do not depend on the optional
// tensors.
inline constexpr LayoutTensor kModelSlimW4A8Tensors[] = {
    {Role::kWeight, "weight", kI8Only, {kHalfRows, kColumns}},
    {Role::kScale, "weight_scale", kFloats, {kRows, kOne}},
    {Role::kOffset, "weight_offset", kFloats, {kRows, kOne}, kAlways, false},
    {Role::kScaleSecond, "weight_scale_second", kFloats, {kRows, kGroups}, kWithGroups},
    {Role::kOffsetSecond, "weight_offset_second", kFloats, {kRows, kGroups}, kWithGroups, false},
    {Role::kScaleBias, "scale_bias", kF32Only, {kRows, kBiasParts}, kAlways, false}};

// Eight INT4 of a row in an I32, value + 8. weight_shape repeats [N, K], which packing could hide.
inline constexpr LayoutTensor kPackQuantizedTensors[] = {
    {Role::kWeight, "weight_packed", kI32Only, {kRows, kColumnWords}},
    {Role::kScale, "weight_scale", kFloatsOrF16, {kRows, kGroups}},
    {Role::kWeightShape, "weight_shape", kInts, {kTwo}}};

// Transposed: K is the outer dimension. Codes and zero points are packed alike, interleaved.
inline constexpr LayoutTensor kAwqTensors[] = {
    {Role::kWeight, "qweight", kI32Only, {kColumns, kRowWords}},
    {Role::kZeroPoints, "qzeros", kI32Only, {kGroups, kRowWords}},
    {Role::kScale, "scales", kHalves, {kGroups, kRows}}};

// A scale beside BF16 weights means that the quant config does not describe them.
inline constexpr const char* kForbiddenInBf16[] = {"weight_scale", "weight_scale_inv"};
// Quantized experts have no place for a bias: without it they would be other experts.
inline constexpr const char* kForbiddenInQuantized[] = {"bias"};
// compressed-tensors writes these for asymmetric weights and for columns out of order.
inline constexpr const char* kForbiddenInCompressed[] = {"bias", "weight_zero_point",
                                                         "weight_g_idx"};
// AWQ never reorders columns; a g_idx means another quantizer.
inline constexpr const char* kForbiddenInAwq[] = {"bias", "g_idx"};

}  // namespace switchyard::internal
