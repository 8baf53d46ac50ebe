#include "model/quant/layout/projection_scales.h"

#include "core/format/weight_scales.h"
#include "model/quant/layout/f16.h"

namespace switchyard {

ProjectionScales::ProjectionScales(const RawProjection& raw)
    : unit_(QuantLayoutInfoOf(raw.quant.layout).scale_unit),
      rows_(raw.size.rows),
      columns_(raw.size.columns),
      group_size_(GroupSizeOf(raw.quant, raw.size.columns)) {
  if (const RawTensor* scale = raw.Find(TensorRole::kScale)) scales_ = FloatsOf(*scale);
  if (const RawTensor* second = raw.Find(TensorRole::kScaleSecond)) second_ = FloatsOf(*second);
  by_group_ = unit_ == ScaleUnit::kGroup || unit_ == ScaleUnit::kGroupMajor || !second_.empty();
}

float ProjectionScales::At(std::int64_t n, std::int64_t k) const {
  const auto at = [](const std::vector<float>& scales, std::int64_t index) {
    return scales[static_cast<std::size_t>(index)];
  };
  const auto in_row = [&] { return n * (columns_ / group_size_) + k / group_size_; };
  switch (unit_) {
    case ScaleUnit::kNone:
      break;
    case ScaleUnit::kTensor:
      return at(scales_, 0);
    case ScaleUnit::kRow:
      return at(scales_, n);
    case ScaleUnit::kBlock:
      return at(scales_, n / kScaleBlock * ScaleBlocks(columns_) + k / kScaleBlock);
    case ScaleUnit::kGroup:
      return at(scales_, in_row());
    case ScaleUnit::kGroupMajor:
      return at(scales_, k / group_size_ * rows_ + n);
    case ScaleUnit::kRowAndGroup:
      if (second_.empty()) return at(scales_, n);
      // The F16 rounding is part of the format: NPU kernels multiply the two in F16.
      return F16ToFloat(FloatToF16(at(scales_, n) * at(second_, in_row())));
  }
  return 1;
}

}  // namespace switchyard
