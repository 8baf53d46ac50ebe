// Encodes the weights of one projection into a layout of quant_layout.h: the inverse of
// dequantize.h.
//
//   fp8_*            scale = max(1e-4, amax) / 448 of a block, row or tensor; q = e4m3(w / scale).
//                    ue8m0: the scale is rounded up to a power of two
//   *_nvfp4          g = 448 * 6 / amax of the tensor (gate and up share theirs); the scale of a
//                    group is e4m3(g * amax16 / 6), q = e2m1(w * g / scale); ModelOpt stores 1 / g
//   *_int8, *_w8a8   scale = amax / 127 of a row; q in [-127, 127]
//   INT4, symmetric  scale = max(largest / 7, -smallest / 8) of a row or group, so that both ends
//                    of [-8, 7] are used; q = w / scale
//   modelslim_w4a8   in groups: a row's scale is that of its widest group, the second scales are
//                    fractions of it, and w is divided by their product as NPUs round it (FP16)
//   awq              scale = (max(w, 0) - min(w, 0)) / 15 of a group in FP16, zero = -min / scale,
//                    q = w / scale + zero in [0, 15]
//
// All rounding is to nearest, ties to even, and w is divided by the scale as it is stored (BF16 for
// w4afp8 and compressed-tensors INT4, FP16 for awq, else FP32). A scale that rounds to 0 gives 0.
// Sources: dispatch semantics of the wire formats for FP8, NVFP4 and INT8; AutoAWQ for zero points;
// model/quant/layout/quant_layout.h for the layouts.
// Pure; thread-safe. Cost: two passes over the weights, some 20 ns each.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/projection.h"
#include "model/quant/layout/raw_projection.h"

namespace switchyard {

struct EncodeRequest {
  ProjectionQuant quant;
  Projection projection = Projection::kGate;
  ProjectionSize size;
  std::span<const float> weights;  // row-major [rows, columns], all of them
  absl::string_view module;        // for errors: "model.layers.3.mlp.experts.7.gate_proj"
  // The largest |w| of all weights under the global scale, which gate and up share; NVFP4 only.
  float global_amax = 0;
  // Largest |x| of the inputs; only where quant.static_inputs.
  float input_amax = 0;
};

// The tensors of ExpectedTensors, including the optional ones except `bias`, because NPU kernels
// read them.
//
// Errors: kDataLoss (CHECKPOINT, WRONG_VALUE) naming the module: a weight that is NaN or infinite,
// weights so large that the layout's FP16 scale cannot hold them; kInvalidArgument (BAD_CONFIG):
// sizes that the layout cannot hold, an input_amax or global_amax that gives no usable scale.
absl::StatusOr<RawProjection> Encode(const EncodeRequest& request);

// Encode's check of an `input_amax`, before anything is encoded. Errors: kInvalidArgument
// (BAD_CONFIG), metadata {module}: it gives no usable scale.
absl::Status CheckInputAmax(const ProjectionQuant& quant, float input_amax,
                            absl::string_view module);

// The largest |w|; 0 for an empty span.
float AmaxOf(std::span<const float> weights);

}  // namespace switchyard
