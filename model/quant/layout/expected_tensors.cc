#include "model/quant/layout/expected_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

using Dtypes = std::vector<TensorDtype>;

constexpr std::int64_t kPerWord = 8;       // INT4 in an I32
constexpr std::int64_t kBiasColumns = 16;  // msModelSlim sums down's in 16 parts, for 16 ranks

Dtypes Floats() { return {TensorDtype::kF32, TensorDtype::kBf16}; }

absl::Status Divides(const char* what, std::int64_t value, std::int64_t divisor,
                     const ProjectionQuant& quant) {
  if (divisor > 0 && value % divisor == 0) return absl::OkStatus();
  return BadConfig(
      divisor == quant.group_size ? "group_size" : "hidden_size",
      absl::StrCat("experts of layout ", QuantLayoutInfoOf(quant.layout).name, " need ", what,
                   " that are multiples of ", divisor, ", found ", value));
}

// Values of K that share a scale.
std::int64_t GroupOf(const ProjectionQuant& quant, const ProjectionSize& size) {
  return quant.group_size == 0 ? size.columns : quant.group_size;
}

std::vector<ExpectedTensor> Fp8(const ProjectionQuant& quant, const ProjectionSize& size) {
  std::vector<ExpectedTensor> tensors{
      {TensorRole::kWeight, "weight", {TensorDtype::kF8E4m3}, {size.rows, size.columns}}};
  const std::vector<std::int64_t> grid{(size.rows + 127) / 128, (size.columns + 127) / 128};
  switch (quant.layout) {
    case QuantLayout::kFp8Block: {
      Dtypes dtypes = Floats();
      if (quant.power_of_two_scales) dtypes.push_back(TensorDtype::kF8E8m0);
      tensors.push_back({TensorRole::kScale, "weight_scale_inv", std::move(dtypes), grid});
      break;
    }
    case QuantLayout::kFp8BlockCompressed:
      tensors.push_back({TensorRole::kScale, "weight_scale", Floats(), grid});
      break;
    case QuantLayout::kFp8Channel:
      tensors.push_back({TensorRole::kScale, "weight_scale", Floats(), {size.rows, 1}});
      break;
    default:
      tensors.push_back({TensorRole::kScale, "weight_scale", Floats(), {}});
      if (quant.static_inputs) {
        tensors.push_back({TensorRole::kInputScale, "input_scale", Floats(), {}});
      }
  }
  return tensors;
}

std::vector<ExpectedTensor> Nvfp4(const ProjectionQuant& quant, const ProjectionSize& size) {
  const bool compressed = quant.layout == QuantLayout::kNvfp4Compressed;
  return {
      {TensorRole::kWeight,
       compressed ? "weight_packed" : "weight",
       {TensorDtype::kU8},
       {size.rows, size.columns / 2}},
      {TensorRole::kScale, "weight_scale", {TensorDtype::kF8E4m3}, {size.rows, size.columns / 16}},
      {TensorRole::kGlobalScale,
       compressed ? "weight_global_scale" : "weight_scale_2",
       {TensorDtype::kF32},
       {}},
      {TensorRole::kInputScale,
       compressed ? "input_global_scale" : "input_scale",
       {TensorDtype::kF32},
       {}}};
}

std::vector<ExpectedTensor> W4Afp8(const ProjectionQuant& quant, const ProjectionSize& size) {
  return {{TensorRole::kWeight, "weight", {TensorDtype::kI8}, {size.rows, size.columns / 2}},
          {TensorRole::kScale,
           "weight_scale_inv",
           Floats(),
           {size.rows, size.columns / quant.group_size}},
          {TensorRole::kInputScale, "input_scale", Floats(), {}}};
}

std::vector<ExpectedTensor> Int8(const ProjectionQuant& quant, const ProjectionSize& size) {
  std::vector<ExpectedTensor> tensors{
      {TensorRole::kWeight, "weight", {TensorDtype::kI8}, {size.rows, size.columns}},
      {TensorRole::kScale, "weight_scale", Floats(), {size.rows, 1}}};
  if (quant.layout != QuantLayout::kInt8Channel) {
    tensors.push_back({TensorRole::kOffset, "weight_offset", Floats(), {size.rows, 1}});
  }
  return tensors;
}

std::vector<ExpectedTensor> W4A8(const ProjectionQuant& quant, Projection projection,
                                 const ProjectionSize& size) {
  std::vector<ExpectedTensor> tensors{
      {TensorRole::kWeight, "weight", {TensorDtype::kI8}, {size.rows / 2, size.columns}},
      {TensorRole::kScale, "weight_scale", Floats(), {size.rows, 1}},
      {TensorRole::kOffset, "weight_offset", Floats(), {size.rows, 1}, false}};
  if (quant.group_size > 0) {
    const std::vector<std::int64_t> groups{size.rows, size.columns / quant.group_size};
    tensors.push_back({TensorRole::kScaleSecond, "weight_scale_second", Floats(), groups});
    tensors.push_back({TensorRole::kOffsetSecond, "weight_offset_second", Floats(), groups, false});
  }
  const std::int64_t parts = projection == Projection::kDown ? kBiasColumns : 1;
  tensors.push_back(
      {TensorRole::kScaleBias, "scale_bias", {TensorDtype::kF32}, {size.rows, parts}, false});
  return tensors;
}

std::vector<ExpectedTensor> PackQuantized(const ProjectionQuant& quant,
                                          const ProjectionSize& size) {
  Dtypes scales = Floats();
  scales.push_back(TensorDtype::kF16);
  return {{TensorRole::kWeight,
           "weight_packed",
           {TensorDtype::kI32},
           {size.rows, size.columns / kPerWord}},
          {TensorRole::kScale,
           "weight_scale",
           std::move(scales),
           {size.rows, size.columns / GroupOf(quant, size)}},
          {TensorRole::kWeightShape, "weight_shape", {TensorDtype::kI64, TensorDtype::kI32}, {2}}};
}

std::vector<ExpectedTensor> Awq(const ProjectionQuant& quant, const ProjectionSize& size) {
  const std::int64_t groups = size.columns / GroupOf(quant, size);
  const std::int64_t words = size.rows / kPerWord;
  return {
      {TensorRole::kWeight, "qweight", {TensorDtype::kI32}, {size.columns, words}},
      {TensorRole::kZeroPoints, "qzeros", {TensorDtype::kI32}, {groups, words}},
      {TensorRole::kScale, "scales", {TensorDtype::kF16, TensorDtype::kBf16}, {groups, size.rows}}};
}

// What N and K have to be multiples of.
absl::Status CheckSize(const ProjectionQuant& quant, const ProjectionSize& size) {
  const std::int64_t group = GroupOf(quant, size);
  switch (quant.layout) {
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
    case QuantLayout::kW4Afp8:
      return Divides("columns", size.columns, group, quant);
    case QuantLayout::kModelSlimW4A8:
      SY_RETURN_IF_ERROR(Divides("rows", size.rows, 2, quant));
      return Divides("columns", size.columns, group, quant);
    case QuantLayout::kPackQuantized:
      SY_RETURN_IF_ERROR(Divides("columns", size.columns, kPerWord, quant));
      return Divides("columns", size.columns, group, quant);
    case QuantLayout::kAwq:
      SY_RETURN_IF_ERROR(Divides("rows", size.rows, kPerWord, quant));
      return Divides("columns", size.columns, group, quant);
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<std::vector<ExpectedTensor>> ExpectedTensors(const ProjectionQuant& quant,
                                                            Projection projection,
                                                            const ProjectionSize& size) {
  SY_RETURN_IF_ERROR(CheckSize(quant, size));
  switch (quant.layout) {
    case QuantLayout::kBf16:
      break;
    case QuantLayout::kFp8Block:
    case QuantLayout::kFp8BlockCompressed:
    case QuantLayout::kFp8Tensor:
    case QuantLayout::kFp8Channel:
      return Fp8(quant, size);
    case QuantLayout::kNvfp4ModelOpt:
    case QuantLayout::kNvfp4Compressed:
      return Nvfp4(quant, size);
    case QuantLayout::kW4Afp8:
      return W4Afp8(quant, size);
    case QuantLayout::kInt8Channel:
    case QuantLayout::kModelSlimW8A8:
    case QuantLayout::kModelSlimW4A4:
      return Int8(quant, size);
    case QuantLayout::kModelSlimW4A8:
      return W4A8(quant, projection, size);
    case QuantLayout::kPackQuantized:
      return PackQuantized(quant, size);
    case QuantLayout::kAwq:
      return Awq(quant, size);
  }
  return std::vector<ExpectedTensor>{
      {TensorRole::kWeight, "weight", {TensorDtype::kBf16}, {size.rows, size.columns}},
      {TensorRole::kBias, "bias", {TensorDtype::kBf16}, {size.rows}, false}};
}

std::span<const char* const> ForbiddenTensors(QuantLayout layout) {
  static constexpr const char* kOfBf16[] = {"weight_scale", "weight_scale_inv"};
  static constexpr const char* kOfQuantized[] = {"bias"};
  static constexpr const char* kOfSymmetric[] = {"bias", "weight_zero_point", "weight_g_idx"};
  static constexpr const char* kOfAwq[] = {"bias", "g_idx"};
  switch (layout) {
    case QuantLayout::kBf16:
      return kOfBf16;
    case QuantLayout::kAwq:
      return kOfAwq;
    case QuantLayout::kInt8Channel:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kFp8Channel:
    case QuantLayout::kFp8BlockCompressed:
      return kOfSymmetric;
    default:
      return kOfQuantized;
  }
}

}  // namespace switchyard
