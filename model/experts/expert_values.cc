#include "model/experts/expert_values.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/quant/layout/projection_scales.h"

namespace switchyard {
namespace {

// Whether the scales of groups may stay outside the values: kernels scale sums after all of K, or
// after each 128 of it. Scales under a global one go into the values: E2M1 times E4M3 is exact in
// BF16, and groups of 16 would cut every sum in eight.
bool StayApart(const QuantLayoutInfo& layout, const ProjectionScales& scales,
               std::int64_t columns) {
  if (layout.global_scale != GlobalScale::kNone) return false;
  return scales.group_size() == columns || scales.group_size() % kScaleBlock == 0;
}

// The scales of groups in the form that kernels take: one for each output and 128 of K, or for each
// output where a group is all of K.
WeightScales ApartScales(const QuantLayoutInfo& layout, const ProjectionScales& scales,
                         const ProjectionSize& size) {
  WeightScales apart;
  // Kernels take no negative scale of an output.
  const bool of_rows = scales.group_size() == size.columns && !layout.scales_may_be_negative;
  std::vector<float>& to = of_rows ? apart.channels : apart.groups;
  const std::int64_t blocks = of_rows ? 1 : ScaleBlocks(size.columns);
  to.reserve(static_cast<std::size_t>(size.rows * blocks));
  for (std::int64_t n = 0; n < size.rows; ++n) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      to.push_back(scales.At(n, block * kScaleBlock));
    }
  }
  return apart;
}

// The factors that stay outside the values. `scaled`: those of groups are multiplied in.
WeightScales OuterScales(const RawProjection& raw, const ProjectionScales& scales, bool scaled) {
  const QuantLayoutInfo& layout = QuantLayoutInfoOf(raw.quant.layout);
  WeightScales outer;
  if (scales.by_group()) {
    if (!scaled) return ApartScales(layout, scales, raw.size);
  } else if (layout.scale_unit == ScaleUnit::kTensor) {
    outer.tensor = scales.stored()[0];
  } else if (layout.scale_unit == ScaleUnit::kBlock) {
    outer.blocks = scales.stored();
  } else {
    outer.channels = scales.stored();  // of rows, or none
  }
  if (layout.global_scale == GlobalScale::kNone) return outer;
  const float global = FloatAt(*raw.Find(TensorRole::kGlobalScale), 0);
  outer.tensor = layout.global_scale == GlobalScale::kDivides ? 1.0F / global : global;
  return outer;
}

void MultiplyGroups(const ProjectionScales& scales, std::int64_t n, std::span<float> row) {
  const auto group = static_cast<std::size_t>(scales.group_size());
  for (std::size_t first = 0; first < row.size(); first += group) {
    const float factor = scales.At(n, static_cast<std::int64_t>(first));
    for (float& value : row.subspan(first, group)) value *= factor;
  }
}

// The static scale of a projection's rows; larger for larger rows.
float InputScaleOf(const RawProjection& raw) {
  const RawTensor* scale = raw.Find(TensorRole::kInputScale);
  return scale == nullptr ? 1 : InputScaleIn(raw.quant, *scale);
}

// `layer_scale`: the largest of the layer's experts; `own`: this expert's.
ActivationSpec SpecOf(const ProjectionQuant& quant, float layer_scale, float own) {
  const ActivationFormat format = ActivationFormatOf(quant);
  if (format == ActivationFormat::kFp8Static) return {format, layer_scale};
  if (format == ActivationFormat::kNvfp4) return {format, 1.0F / own};
  return {format};
}

}  // namespace

ProjectionValues ValuesOf(const RawProjection& projection) {
  const QuantLayoutInfo& layout = QuantLayoutInfoOf(projection.quant.layout);
  const auto [rows, columns] = projection.size;
  ProjectionValues result;
  result.values.resize(static_cast<std::size_t>(rows * columns));
  if (const RawTensor* bias = projection.Find(TensorRole::kBias)) result.bias = FloatsOf(*bias);
  const RawTensor& weight = *projection.Find(TensorRole::kWeight);
  if (weight.dtype == TensorDtype::kBf16) {
    // BF16 weights are the values; the detour over FP32 would only cost time.
    std::memcpy(result.values.data(), weight.bytes.data(), weight.bytes.size());
    return result;
  }
  const ProjectionScales scales(projection);
  const bool scaled = scales.by_group() && !StayApart(layout, scales, columns);
  result.scales = OuterScales(projection, scales, scaled);
  const auto width = static_cast<std::size_t>(columns);
  std::vector<float> strip(static_cast<std::size_t>(layout.decoder.rows) * width);
  for (std::int64_t first = 0; first < rows; first += layout.decoder.rows) {
    layout.decoder.decode(projection, first, strip.data());
    for (std::int64_t i = 0; i < layout.decoder.rows; ++i) {
      const std::span<float> row(strip.data() + i * columns, width);
      if (scaled) MultiplyGroups(scales, first + i, row);
      Bf16* out = result.values.data() + (first + i) * columns;
      for (std::size_t k = 0; k < width; ++k) out[k] = FloatToBf16(row[k]);
    }
  }
  return result;
}

ExpertActivations ActivationsOf(const LayerQuant& quant, const RawExpert& expert,
                                const LayerInputScales& scales) {
  const float own_inputs = std::max(InputScaleOf(expert.of(Projection::kGate)),
                                    InputScaleOf(expert.of(Projection::kUp)));
  ExpertActivations activations{SpecOf(quant.of(Projection::kGate), scales.gate_up_max, own_inputs),
                                SpecOf(quant.of(Projection::kDown), scales.down_max,
                                       InputScaleOf(expert.of(Projection::kDown)))};
  // Kernels for INT4 rows exist for gate and up only; down reads INT8 (msModelSlim's W4A4).
  if (activations.middle.format == ActivationFormat::kInt4Row) {
    activations.middle.format = ActivationFormat::kInt8Row;
  }
  return activations;
}

}  // namespace switchyard
