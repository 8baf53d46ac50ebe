// The tensors that a projection of one expert has in each layout: names, dtypes, shapes.
//
//   layout                        tensors below "<module>." (N = out, K = in, g = group size)
//   bf16                          weight BF16 [N,K], bias BF16 [N]?
//   bf16, packed                  of all E experts, gate above up: gate_up_proj BF16 [E,2N,K],
//                                 gate_up_proj_bias BF16 [E,2N]?, down_proj BF16 [E,N,K],
//                                 down_proj_bias BF16 [E,N]?; layer_experts.cc
//   fp8_block                     weight F8_E4M3 [N,K], weight_scale_inv F32|BF16|F8_E8M0*
//                                 [ceil(N/128), ceil(K/128)]; *: with scale_fmt ue8m0 only
//   compressed_tensors_fp8_block  the same with weight_scale F32|BF16
//   fp8_tensor                    weight F8_E4M3 [N,K], weight_scale, input_scale** F32|BF16 1
//   compressed_tensors_fp8_channel  weight F8_E4M3 [N,K], weight_scale F32|BF16 [N,1]
//   modelopt_nvfp4                weight U8 [N,K/2], weight_scale F8_E4M3 [N,K/16],
//                                 weight_scale_2 F32 1, input_scale F32 1
//   compressed_tensors_nvfp4      weight_packed U8 [N,K/2], weight_scale F8_E4M3 [N,K/16],
//                                 weight_global_scale F32 1, input_global_scale F32 1
//   w4afp8                        weight I8 [N,K/2], weight_scale_inv BF16|F32 [N,K/128],
//                                 input_scale BF16|F32 1
//   compressed_tensors_int8       weight I8 [N,K], weight_scale F32|BF16 [N,1]
//   modelslim_w8a8, _w4a4         weight I8 [N,K], weight_scale, weight_offset F32|BF16 [N,1]
//   modelslim_w4a8                weight I8 [N/2,K], weight_scale F32|BF16 [N,1], weight_offset?,
//                                 weight_scale_second F32|BF16 [N,K/g] when g > 0,
//                                 weight_offset_second?, scale_bias F32 [N,1], of down [N,16] ?
//   compressed_tensors_int4       weight_packed I32 [N,K/8], weight_scale BF16|F16|F32 [N,K/g],
//                                 weight_shape I64|I32 [2]
//   awq                           qweight I32 [K,N/8], qzeros I32 [K/g,N/8],
//                                 scales F16|BF16 [K/g,N]
//
// 1: one element, [] or [1]; ?: may be absent; **: of static inputs. Tensors that would change what
// the weights mean (weight_g_idx, weight_zero_point of symmetric layouts) must be absent.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/projection.h"
#include "model/quant/layout/quant_layout.h"
#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// What a tensor is for, whatever its layout calls it.
enum class TensorRole : std::uint8_t {
  kWeight,
  kBias,         // of the projection; unquantized
  kScale,        // of blocks, rows, groups or the tensor
  kScaleSecond,  // of the groups of a row that has a scale of its own
  kGlobalScale,  // over the scales of groups
  kInputScale,   // static, of the projection's inputs
  kOffset,       // zeros
  kOffsetSecond,
  kZeroPoints,
  kScaleBias,    // what NPUs add for INT4 weights; no part of the weights
  kWeightShape,  // [N, K]
};

struct ExpectedTensor {
  TensorRole role = TensorRole::kWeight;
  const char* suffix = "";
  std::vector<TensorDtype> dtypes;  // any of them
  std::vector<std::int64_t> shape;  // {}: one element, as [] or [1]
  bool required = true;
};

// [rows, columns] of the projection: N x K.
struct ProjectionSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: sizes that the layout cannot hold, such as
// K that is no multiple of the group size. Rows and columns need not be multiples of 128 for
// blocks: the last block is then smaller.
absl::StatusOr<std::vector<ExpectedTensor>> ExpectedTensors(const ProjectionQuant& quant,
                                                            Projection projection,
                                                            const ProjectionSize& size);
// Suffixes that must be absent.
std::span<const char* const> ForbiddenTensors(QuantLayout layout);

}  // namespace switchyard
