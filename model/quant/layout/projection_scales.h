// The scales of one projection's weights, by the ScaleUnit of its layout, without the global one.
//
// Immutable; thread-safe. Cost: a copy of the scales in FP32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/quant/layout/raw_projection.h"

namespace switchyard {

class ProjectionScales {
 public:
  // `raw` has the tensors of its layout, with valid shapes; it need not outlive this object.
  explicit ProjectionScales(const RawProjection& raw);

  // The scale of the weight [n, k]; 1 where the layout has none.
  [[nodiscard]] float At(std::int64_t n, std::int64_t k) const;

  // True when the scales differ between groups of K. Each group then has group_size() of K.
  [[nodiscard]] bool by_group() const { return by_group_; }
  [[nodiscard]] std::int64_t group_size() const { return group_size_; }

  // The scales as stored: [1], [N], or by block or group in C order; empty where there are none.
  [[nodiscard]] const std::vector<float>& stored() const { return scales_; }

 private:
  const ScaleUnit unit_;
  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::int64_t group_size_;
  std::vector<float> scales_;
  std::vector<float> second_;
  bool by_group_ = false;
};

}  // namespace switchyard
