#include "model/quant/layout/raw_projection.h"

#include <cstring>

#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "model/quant/layout/f16.h"

namespace switchyard {
namespace {

// memcpy, because a tensor may begin at any byte of its file.
template <typename T>
T ElementAt(const RawTensor& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

const RawTensor* RawProjection::Find(TensorRole role) const {
  for (const RawTensor& tensor : tensors) {
    if (tensor.role == role) return &tensor;
  }
  return nullptr;
}

float FloatAt(const RawTensor& tensor, std::int64_t index) {
  switch (tensor.dtype) {
    case TensorDtype::kF8E4m3:
      return E4m3ToFloat(ElementAt<Fp8E4m3>(tensor, index));
    case TensorDtype::kF8E8m0:
      return Ue8m0ToFloat(ElementAt<Ue8m0>(tensor, index));
    case TensorDtype::kF16:
      return F16ToFloat(ElementAt<F16>(tensor, index));
    case TensorDtype::kBf16:
      return Bf16ToFloat(ElementAt<Bf16>(tensor, index));
    default:
      return ElementAt<float>(tensor, index);
  }
}

std::vector<float> FloatsOf(const RawTensor& tensor) {
  const std::size_t count = tensor.bytes.size() * 8 / TensorDtypeBits(tensor.dtype);
  std::vector<float> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(FloatAt(tensor, static_cast<std::int64_t>(i)));
  }
  return values;
}

float InputScaleIn(const ProjectionQuant& quant, const RawTensor& scale) {
  const float value = FloatAt(scale, 0);
  return QuantLayoutInfoOf(quant.layout).global_scale == GlobalScale::kDivides ? 1.0F / value
                                                                               : value;
}

}  // namespace switchyard
