// The weights of one projection in FP32, from its tensors as they lie in the checkpoint.
//
// The reference for tests and tools: every weight from its own formula, nothing shared and nothing
// fast. Expert kernels take the same RawProjection and are compared with this.
//
//   bf16                 w = weight
//   fp8_block            w = e4m3(weight) * scale of its block; "inv" or not, it is multiplied
//   fp8_tensor, channel  w = e4m3(weight) * scale
//   modelopt_nvfp4       w = (e2m1 * e4m3(weight_scale)) * weight_scale_2
//   compressed nvfp4     w = (e2m1 * e4m3(weight_scale)) / weight_global_scale
//                        even k in the low nibble
//   w4afp8               w = int4 * scale of its 128; even k in the low nibble, two's complement
//   int8, modelslim_w8a8, _w4a4      w = int8 * scale of its row
//   modelslim_w4a8       w = int4 * scale; even row in the low nibble, two's complement. With
//   groups
//                        the scale is fp32(fp16(scale * second)), as NPU kernels compute it
//   compressed int4      w = (nibble - 8) * scale of its group; nibble i of word j is k = 8j + i
//   awq                  w = (nibble - zero) * scale of its group; nibble i of word j is row
//                        8j + {0,2,4,6,1,3,5,7}[i]
//
// Every product and quotient is one FP32 operation, rounded to nearest even, left to right.
// Pure; thread-safe. Cost: rows * columns times some 20 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/quant/layout/expected_tensors.h"
#include "model/quant/layout/quant_layout.h"

namespace switchyard {

struct RawTensor {
  TensorRole role = TensorRole::kWeight;
  TensorDtype dtype = TensorDtype::kBf16;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // little endian, C order, as stored
};

// What LoadProjection (expert_tensors.h) gives: every required tensor of the layout, checked.
struct RawProjection {
  ProjectionQuant quant;
  ProjectionSize size;
  std::vector<RawTensor> tensors;

  // nullptr when the projection has none of that role.
  [[nodiscard]] const RawTensor* Find(TensorRole role) const;
};

// Row-major [size.rows, size.columns].
std::vector<float> Dequantize(const RawProjection& projection);

// Element `index` of a tensor of F32, BF16, F16, F8_E4M3 or F8_E8M0.
float FloatAt(const RawTensor& tensor, std::int64_t index);

}  // namespace switchyard
