// The weights of one projection as expert kernels take them: BF16 values, and apart from them one
// scale for the whole tensor where the layout has one.
//
// Equal to Dequantize (dequantize.h) rounded to BF16 once. Where the layout's only FP32 factor is
// one for the tensor (per-tensor FP8, NVFP4) the values are exact and the factor stays outside, so
// nothing is lost at all. Pure; thread-safe. Cost: about a nanosecond for each weight.
#pragma once

#include <vector>

#include "core/activation_format.h"
#include "core/bf16.h"
#include "model/quant/layer_experts.h"

namespace switchyard {

struct ProjectionValues {
  std::vector<Bf16> values;  // row-major [rows, columns]
  float scale = 1;           // of every value
  std::vector<float> bias;   // [rows], or empty
};
ProjectionValues ValuesOf(const RawProjection& projection);

// What experts of a layer do to their rows: `inputs` before gate and up, `middle` before down.
struct ExpertActivations {
  ActivationSpec inputs;
  ActivationSpec middle;
};
// `scales` are those of the whole layer: static FP8 takes the largest of all experts, as the fused
// kernels of SGLang and vLLM do, NVFP4 the expert's own.
ExpertActivations ActivationsOf(const LayerQuant& quant, const RawExpert& expert,
                                const LayerInputScales& scales);

}  // namespace switchyard
