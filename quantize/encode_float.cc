// The layouts whose weights are small floating point numbers: FP8 and NVFP4.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "core/format/nvfp4_scale.h"
#include "quantize/encoders.h"

namespace switchyard::internal {
namespace {

constexpr std::int64_t kBlock = 128;
// The floor that the FP8 wire formats use too: it keeps the scale of a block of zeros above zero.
constexpr float kFp8AmaxMin = 1e-4F;
// For a tensor of (nearly) only zeros: keeps the global scale within CheckGlobalScale's limits.
constexpr float kNvfp4AmaxMin = 0x1p-80F;

float Fp8Scale(float amax) { return std::max(kFp8AmaxMin, amax) / kE4m3Max; }

float AmaxOfRow(const EncodeRequest& request, std::int64_t row) {
  const auto columns = static_cast<std::size_t>(request.size.columns);
  return AmaxOf(request.weights.subspan(static_cast<std::size_t>(row) * columns, columns));
}

// E4M3 codes, where scale_at(row, column) is the stored scale.
template <typename ScaleAt>
RawTensor Fp8Codes(const EncodeRequest& request, const ScaleAt& scale_at) {
  std::vector<Fp8E4m3> codes;
  codes.reserve(request.weights.size());
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    for (std::int64_t k = 0; k < request.size.columns; ++k) {
      const float scale = scale_at(n, k);
      Fp8E4m3 code = FloatToE4m3(request.weights[codes.size()] / scale);
      // Under a scale that was rounded up, the nearest code times the scale may exceed FP32.
      if (std::isinf(E4m3ToFloat(code) * scale)) --code;
      codes.push_back(code);
    }
  }
  return TensorOf(TensorRole::kWeight, TensorDtype::kF8E4m3,
                  {request.size.rows, request.size.columns}, codes);
}

// The largest magnitude of each block, row by row of blocks; the last ones may be smaller.
std::vector<float> BlockAmax(const EncodeRequest& request, std::int64_t across) {
  const std::int64_t down = (request.size.rows + kBlock - 1) / kBlock;
  std::vector<float> amax(static_cast<std::size_t>(down * across), 0.0F);
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    for (std::int64_t k = 0; k < request.size.columns; ++k) {
      float& block = amax[static_cast<std::size_t>(n / kBlock * across + k / kBlock)];
      block = std::max(
          block, std::abs(request.weights[static_cast<std::size_t>(n * request.size.columns + k)]));
    }
  }
  return amax;
}

// The E4M3 scales of groups and the E2M1 codes under the global scale `g`.
std::vector<RawTensor> Nvfp4Codes(const EncodeRequest& request, float g) {
  const std::int64_t group = GroupOf(request);
  std::vector<Fp8E4m3> scales;
  std::vector<std::uint8_t> bytes(request.weights.size() / 2, 0);
  for (std::size_t at = 0; at < request.weights.size(); at += static_cast<std::size_t>(group)) {
    const auto weights = request.weights.subspan(at, static_cast<std::size_t>(group));
    scales.push_back(FloatToE4m3(AmaxOf(weights) * g / kE2m1Max));
    // Codes are relative to the scale as it is stored, so its rounding does not add to theirs. A
    // scale that rounds to zero leaves the codes zero.
    const float scale = E4m3ToFloat(scales.back());
    for (std::size_t i = 0; i < weights.size() && scale > 0; ++i) {
      const Fp4E2m1 code = FloatToE2m1(weights[i] * g / scale);
      bytes[(at + i) / 2] |= static_cast<std::uint8_t>(i % 2 == 0 ? code : code << 4U);
    }
  }
  const std::int64_t rows = request.size.rows;
  return {TensorOf(TensorRole::kWeight, TensorDtype::kU8, {rows, request.size.columns / 2}, bytes),
          TensorOf(TensorRole::kScale, TensorDtype::kF8E4m3, {rows, request.size.columns / group},
                   scales)};
}

}  // namespace

EncodedTensors EncodeFp8Block(const EncodeRequest& request) {
  const std::int64_t across = (request.size.columns + kBlock - 1) / kBlock;
  const std::int64_t down = (request.size.rows + kBlock - 1) / kBlock;
  std::vector<float> scales = BlockAmax(request, across);
  std::vector<Ue8m0> powers;
  for (float& scale : scales) {
    scale = Fp8Scale(scale);
    if (!request.quant.power_of_two_scales) continue;
    // Up, so that the largest weight of a block still fits below 448.
    powers.push_back(FloatToUe8m0RoundUp(scale));
    scale = Ue8m0ToFloat(powers.back());
  }
  const auto scale_at = [&](std::int64_t n, std::int64_t k) {
    return scales[static_cast<std::size_t>(n / kBlock * across + k / kBlock)];
  };
  return std::vector<RawTensor>{
      Fp8Codes(request, scale_at),
      request.quant.power_of_two_scales
          ? TensorOf(TensorRole::kScale, TensorDtype::kF8E8m0, {down, across}, powers)
          : TensorOf(TensorRole::kScale, TensorDtype::kF32, {down, across}, scales)};
}

EncodedTensors EncodeFp8Tensor(const EncodeRequest& request) {
  const std::vector<float> scale{Fp8Scale(AmaxOf(request.weights))};
  std::vector<RawTensor> tensors{
      Fp8Codes(request, [&](std::int64_t, std::int64_t) { return scale[0]; }),
      TensorOf(TensorRole::kScale, TensorDtype::kF32, {}, scale)};
  if (!request.quant.static_inputs) return tensors;
  SY_ASSIGN_OR_RETURN(const float input, InputScale(request));
  tensors.push_back(
      TensorOf(TensorRole::kInputScale, TensorDtype::kF32, {}, std::vector<float>{input}));
  return tensors;
}

EncodedTensors EncodeFp8Channel(const EncodeRequest& request) {
  std::vector<float> scales;
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    scales.push_back(Fp8Scale(AmaxOfRow(request, n)));
  }
  const auto scale_at = [&](std::int64_t n, std::int64_t) {
    return scales[static_cast<std::size_t>(n)];
  };
  return std::vector<RawTensor>{
      Fp8Codes(request, scale_at),
      TensorOf(TensorRole::kScale, TensorDtype::kF32, {request.size.rows, 1}, scales)};
}

EncodedTensors EncodeNvfp4(const EncodeRequest& request) {
  const bool compressed =
      QuantLayoutInfoOf(request.quant.layout).global_scale == GlobalScale::kDivides;
  const float amax = std::max({kNvfp4AmaxMin, request.global_amax, AmaxOf(request.weights)});
  const absl::StatusOr<float> global = GlobalScaleFromAmax(amax);
  if (!global.ok()) return Annotate(global.status(), request.module);
  const float g = *global;
  SY_ASSIGN_OR_RETURN(const float input, InputScale(request));
  std::vector<RawTensor> tensors = Nvfp4Codes(request, g);
  // One element: [1] for compressed-tensors, [] for ModelOpt, as their tools write it.
  const std::vector<std::int64_t> one =
      compressed ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{};
  const auto add = [&](TensorRole role, float scale) {
    tensors.push_back(TensorOf(role, TensorDtype::kF32, one, std::vector<float>{scale}));
  };
  add(TensorRole::kGlobalScale, compressed ? g : amax / kNvfp4Range);
  add(TensorRole::kInputScale, compressed ? 1.0F / input : input);
  return tensors;
}

}  // namespace switchyard::internal
