// The weights of one projection in the form that expert kernels take: BF16 values, and beside them
// the scales of the tensor, of each output, of each block of 128 by 128, or of each output and
// group of K.
//
// Values are codes, or codes times E4M3 scales of groups, which are exact in BF16; all FP32 factors
// stay outside, so nothing is lost. The exception are scales of groups of K that are neither a
// multiple of 128 nor all of K: they are multiplied in, and the values are Dequantize's
// (dequantize.h) rounded to BF16 once. Pure; thread-safe. Cost: about a nanosecond for each weight.
#pragma once

#include <vector>

#include "core/activation_format.h"
#include "core/format/bf16.h"
#include "core/format/weight_scales.h"
#include "model/experts/layer_experts.h"

namespace switchyard {

struct ProjectionValues {
  std::vector<Bf16> values;  // row-major [rows, columns]
  WeightScales scales;
  std::vector<float> bias;  // [rows], or empty
};
ProjectionValues ValuesOf(const RawProjection& projection);

// The rounding that experts apply to their rows: `inputs` before gate and up, `middle` before down.
struct ExpertActivations {
  ActivationSpec inputs;
  ActivationSpec middle;
};
// `scales` are those of the whole layer: static FP8 uses the largest of all experts, as the fused
// kernels of SGLang and vLLM do; NVFP4 uses the expert's own.
ExpertActivations ActivationsOf(const LayerQuant& quant, const RawExpert& expert,
                                const LayerInputScales& scales);

}  // namespace switchyard
