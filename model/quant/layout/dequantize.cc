#include "model/quant/layout/dequantize.h"

#include <cstddef>
#include <cstdint>

#include "model/quant/layout/projection_scales.h"

namespace switchyard {

std::vector<float> Dequantize(const RawProjection& projection) {
  const QuantLayoutInfo& layout = QuantLayoutInfoOf(projection.quant.layout);
  const auto [rows, columns] = projection.size;
  const ProjectionScales scales(projection);
  const RawTensor* global = projection.Find(TensorRole::kGlobalScale);
  const float outer = global == nullptr ? 1 : FloatAt(*global, 0);
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t n = 0; n < rows; n += layout.decoder.rows) {
    layout.decoder.decode(projection, n, out.data() + n * columns);
  }
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < columns; ++k) {
      float& weight = out[static_cast<std::size_t>(n * columns + k)];
      weight *= scales.At(n, k);
      // A quotient is not the product with a rounded reciprocal: the last bit may differ.
      if (layout.global_scale == GlobalScale::kMultiplies) weight *= outer;
      if (layout.global_scale == GlobalScale::kDivides) weight /= outer;
    }
  }
  return out;
}

}  // namespace switchyard
