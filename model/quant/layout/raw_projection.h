// The tensors of one projection as the checkpoint stores them, each under its role.
//
// Plain data; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/quant/layout/layout_tensors.h"
#include "model/quant/layout/quant_layout.h"
#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// A tensor with its bytes; owns them.
struct RawTensor {
  TensorRole role = TensorRole::kWeight;
  TensorDtype dtype = TensorDtype::kBf16;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // little endian, C order, as stored
};

// LayerExperts::Load and Encode return these with every required tensor of the layout, checked.
struct RawProjection {
  ProjectionQuant quant;
  ProjectionSize size;
  std::vector<RawTensor> tensors;

  // nullptr when the projection has no tensor of that role. O(tensors).
  [[nodiscard]] const RawTensor* Find(TensorRole role) const;
};

// Element `index` of a tensor of F32, BF16, F16, F8_E4M3 or F8_E8M0.
float FloatAt(const RawTensor& tensor, std::int64_t index);
// All elements of such a tensor.
std::vector<float> FloatsOf(const RawTensor& tensor);

// The scale of the inputs that `scale` holds, a tensor of role kInputScale: larger for larger rows
// in every layout, so the reciprocal where the layout stores reciprocals.
float InputScaleIn(const ProjectionQuant& quant, const RawTensor& scale);

}  // namespace switchyard
