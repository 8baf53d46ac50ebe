// NVFP4's global scale, from the numbers that checkpoints store.
//
// The E4M3 scales of NVFP4's blocks are relative to one FP32 number of the tensor,
// g = 448 * 6 / (largest magnitude), which puts the largest block at the top of E4M3's range.
// ModelOpt stores 1 / g (`input_scale`, `weight_scale_2`), compressed-tensors g itself
// (`input_global_scale`, `weight_global_scale`): the same tensor has reciprocal numbers in the two.
//
// Pure; thread-safe. Errors of every call: kInvalidArgument (BAD_CONFIG) when g is not a number
// from 2^-100 to 2^100, beyond which a block's factor could over- or underflow.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace switchyard {

inline constexpr float kNvfp4Range = 448.0F * 6.0F;
inline constexpr float kGlobalScaleMin = 0x1p-100F;
inline constexpr float kGlobalScaleMax = 0x1p100F;

absl::Status CheckGlobalScale(float global_scale);

// `amax`: the largest magnitude that calibration saw, in FP32.
absl::StatusOr<float> GlobalScaleFromAmax(float amax);
// `scale`: ModelOpt's `input_scale` or `weight_scale_2`. Those of compressed-tensors,
// `input_global_scale` and `weight_global_scale`, are global scales as they stand.
absl::StatusOr<float> GlobalScaleFromModelOpt(float scale);

}  // namespace switchyard
