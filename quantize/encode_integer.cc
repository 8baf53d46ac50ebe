// The layouts whose weights are whole numbers: INT8 and INT4.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "model/quant/layout/f16.h"
#include "quantize/encoders.h"

namespace switchyard::internal {
namespace {

// Symmetric INT8: -128 stays unused, so that a row and its negative have the same codes but for
// signs.
constexpr float kInt8Max = 127.0F;
constexpr std::int64_t kBiasParts = 16;  // of down's scale_bias, for as many ranks
constexpr std::uint32_t kAwqMax = 15;
constexpr float kF16Max = 65504.0F;

float WeightAt(const EncodeRequest& request, std::int64_t n, std::int64_t k) {
  return request.weights[static_cast<std::size_t>(n * request.size.columns + k)];
}

// Symmetric INT4 in [-8, 7], row-major, one in each element. `scales` are those of groups.
std::vector<std::int8_t> Int4Codes(const EncodeRequest& request, const std::vector<float>& scales) {
  const std::int64_t group = GroupOf(request);
  const std::int64_t groups = request.size.columns / group;
  std::vector<std::int8_t> codes;
  codes.reserve(request.weights.size());
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    for (std::int64_t k = 0; k < request.size.columns; ++k) {
      const float scale = scales[static_cast<std::size_t>(n * groups + k / group)];
      codes.push_back(static_cast<std::int8_t>(Rounded(WeightAt(request, n, k), scale, -8, 7)));
    }
  }
  return codes;
}

// The scale of each group of each row, in FP32.
std::vector<float> Int4Scales(const EncodeRequest& request) {
  const std::int64_t group = GroupOf(request);
  std::vector<float> scales;
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    for (std::int64_t k = 0; k < request.size.columns; k += group) {
      scales.push_back(RangeOf(request, n, k, group).Int4Scale());
    }
  }
  return scales;
}

// `scales` rounded to BF16, in place; gives their bits.
std::vector<Bf16> RoundToBf16(std::vector<float>& scales) {
  std::vector<Bf16> bits(scales.size());
  FloatsToBf16(scales, bits);
  Bf16ToFloats(bits, scales);
  return bits;
}

std::uint8_t Nibble(std::int8_t code) { return static_cast<std::uint8_t>(code) & 0xfU; }

// msModelSlim stores this beside INT4 weights for kernels that read them as unsigned: 8 times the
// sum of a row's weights, in parts for down.
RawTensor ScaleBias(const EncodeRequest& request, const std::vector<std::int8_t>& codes,
                    const std::vector<float>& effective) {
  const std::int64_t columns = request.size.columns;
  const std::int64_t group = GroupOf(request);
  const std::int64_t parts = request.projection == Projection::kDown ? kBiasParts : 1;
  std::vector<float> bias;
  for (std::int64_t n = 0; n < request.size.rows; ++n) {
    for (std::int64_t part = 0; part < parts; ++part) {
      double sum = 0;
      for (std::int64_t k = part * columns / parts; k < (part + 1) * columns / parts; ++k) {
        const auto at = static_cast<std::size_t>(n * columns + k);
        const auto scale = static_cast<std::size_t>(n * (columns / group) + k / group);
        sum += static_cast<double>(codes[at]) * static_cast<double>(effective[scale]);
      }
      bias.push_back(static_cast<float>(8 * sum));
    }
  }
  return TensorOf(TensorRole::kScaleBias, TensorDtype::kF32, {request.size.rows, parts}, bias);
}

// Two rows in a byte, the even one in the low nibble.
RawTensor PackRows(const EncodeRequest& request, const std::vector<std::int8_t>& codes) {
  const std::int64_t columns = request.size.columns;
  std::vector<std::uint8_t> bytes;
  for (std::int64_t n = 0; n < request.size.rows; n += 2) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto even = Nibble(codes[static_cast<std::size_t>(n * columns + k)]);
      const auto odd = Nibble(codes[static_cast<std::size_t>((n + 1) * columns + k)]);
      bytes.push_back(static_cast<std::uint8_t>(even | odd << 4U));
    }
  }
  return TensorOf(TensorRole::kWeight, TensorDtype::kI8, {request.size.rows / 2, columns}, bytes);
}

// The scales of rows, of the groups under them, and their products as NPU kernels compute them.
struct TwoScales {
  std::vector<float> rows;
  std::vector<float> second;     // empty without groups
  std::vector<float> effective;  // of each group of each row
};

absl::StatusOr<TwoScales> SplitScales(const EncodeRequest& request) {
  TwoScales out;
  out.effective = Int4Scales(request);
  if (request.quant.group_size == 0) {
    out.rows = out.effective;
    return out;
  }
  const auto groups = static_cast<std::size_t>(request.size.columns / GroupOf(request));
  for (std::size_t at = 0; at < out.effective.size(); ++at) {
    if (at % groups == 0) {
      const auto row = out.effective.begin() + static_cast<std::ptrdiff_t>(at);
      out.rows.push_back(*std::max_element(row, row + static_cast<std::ptrdiff_t>(groups)));
    }
    const float row = out.rows.back();
    // The row's scale is that of its widest group, so the second scales are fractions up to 1.
    out.second.push_back(row == 0 ? 0 : out.effective[at] / row);
    const float product = row * out.second.back();
    if (product > kF16Max) {
      return WrongWeight(request, absl::StrCat("weights of a group need the scale ", product,
                                               ", and NPUs compute it in FP16; keep this layer in "
                                               "BF16 or use modelslim_w8a8"));
    }
    out.effective[at] = F16ToFloat(FloatToF16(product));
  }
  return out;
}

// The scale and zero point of one group of one row.
struct AwqGroup {
  F16 scale = 0;
  std::uint32_t zero = 0;
};

AwqGroup AwqGroupOf(const Range& range) {
  AwqGroup group;
  // The ends are halved first, because their difference may exceed FP32.
  group.scale = FloatToF16((range.high / 2 - range.low / 2) / (static_cast<float>(kAwqMax) / 2));
  const float scale = F16ToFloat(group.scale);
  group.zero = static_cast<std::uint32_t>(Rounded(-range.low, scale, 0, kAwqMax));
  return group;
}

// Adds column n of a line of an AWQ tensor to its word.
void PutAwq(std::vector<std::uint32_t>& words, std::size_t line_begin, std::int64_t n,
            std::uint32_t value) {
  // Nibble i of a word is column {0, 2, 4, 6, 1, 3, 5, 7}[i]; this is the inverse.
  constexpr std::uint32_t kNibbleOfColumn[] = {0, 4, 1, 5, 2, 6, 3, 7};
  words[line_begin + static_cast<std::size_t>(n / 8)] |= value << (4 * kNibbleOfColumn[n % 8]);
}

}  // namespace

EncodedTensors EncodeW4Afp8(const EncodeRequest& request) {
  std::vector<float> scales = Int4Scales(request);
  const std::vector<Bf16> stored = RoundToBf16(scales);
  const std::vector<std::int8_t> codes = Int4Codes(request, scales);
  std::vector<std::uint8_t> bytes;
  for (std::size_t at = 0; at < codes.size(); at += 2) {
    bytes.push_back(static_cast<std::uint8_t>(Nibble(codes[at]) | Nibble(codes[at + 1]) << 4U));
  }
  SY_ASSIGN_OR_RETURN(const float input, InputScale(request));
  const std::int64_t rows = request.size.rows;
  return std::vector<RawTensor>{
      TensorOf(TensorRole::kWeight, TensorDtype::kI8, {rows, request.size.columns / 2}, bytes),
      TensorOf(TensorRole::kScale, TensorDtype::kBf16,
               {rows, request.size.columns / GroupOf(request)}, stored),
      TensorOf(TensorRole::kInputScale, TensorDtype::kBf16, {1},
               std::vector<Bf16>{FloatToBf16(input)})};
}

EncodedTensors EncodeInt8(const EncodeRequest& request) {
  const std::int64_t rows = request.size.rows;
  std::vector<float> scales;
  std::vector<std::int8_t> codes;
  for (std::int64_t n = 0; n < rows; ++n) {
    const Range range = RangeOf(request, n, 0, request.size.columns);
    scales.push_back(std::max(range.high, -range.low) / kInt8Max);
    for (std::int64_t k = 0; k < request.size.columns; ++k) {
      codes.push_back(
          static_cast<std::int8_t>(Rounded(WeightAt(request, n, k), scales.back(), -127, 127)));
    }
  }
  return std::vector<RawTensor>{
      TensorOf(TensorRole::kWeight, TensorDtype::kI8, {rows, request.size.columns}, codes),
      TensorOf(TensorRole::kScale, TensorDtype::kF32, {rows, 1}, scales)};
}

EncodedTensors EncodeModelSlimInt8(const EncodeRequest& request) {
  SY_ASSIGN_OR_RETURN(std::vector<RawTensor> tensors, EncodeInt8(request));
  const std::vector<float> zeros(static_cast<std::size_t>(request.size.rows), 0.0F);
  tensors.push_back(
      TensorOf(TensorRole::kOffset, TensorDtype::kF32, {request.size.rows, 1}, zeros));
  return tensors;
}

EncodedTensors EncodeModelSlimW4A4(const EncodeRequest& request) {
  const std::int64_t rows = request.size.rows;
  const std::vector<float> scales = Int4Scales(request);
  const std::vector<float> zeros(static_cast<std::size_t>(rows), 0.0F);
  return std::vector<RawTensor>{TensorOf(TensorRole::kWeight, TensorDtype::kI8,
                                         {rows, request.size.columns}, Int4Codes(request, scales)),
                                TensorOf(TensorRole::kScale, TensorDtype::kF32, {rows, 1}, scales),
                                TensorOf(TensorRole::kOffset, TensorDtype::kF32, {rows, 1}, zeros)};
}

EncodedTensors EncodeModelSlimW4A8(const EncodeRequest& request) {
  const std::int64_t rows = request.size.rows;
  SY_ASSIGN_OR_RETURN(const TwoScales scales, SplitScales(request));
  const std::vector<std::int8_t> codes = Int4Codes(request, scales.effective);
  const auto add_floats = [](std::vector<RawTensor>& tensors, TensorRole role,
                             const std::vector<std::int64_t>& shape,
                             const std::vector<float>& values) {
    tensors.push_back(TensorOf(role, TensorDtype::kF32, shape, values));
  };
  std::vector<RawTensor> tensors{PackRows(request, codes)};
  add_floats(tensors, TensorRole::kScale, {rows, 1}, scales.rows);
  add_floats(tensors, TensorRole::kOffset, {rows, 1}, std::vector<float>(scales.rows.size()));
  if (!scales.second.empty()) {
    const std::int64_t groups = request.size.columns / GroupOf(request);
    const std::vector<float> zeros(scales.second.size());
    add_floats(tensors, TensorRole::kScaleSecond, {rows, groups}, scales.second);
    add_floats(tensors, TensorRole::kOffsetSecond, {rows, groups}, zeros);
  }
  tensors.push_back(ScaleBias(request, codes, scales.effective));
  return tensors;
}

EncodedTensors EncodePackQuantized(const EncodeRequest& request) {
  std::vector<float> scales = Int4Scales(request);
  const std::vector<Bf16> stored = RoundToBf16(scales);
  const std::vector<std::int8_t> codes = Int4Codes(request, scales);
  std::vector<std::uint32_t> words(codes.size() / 8, 0);
  for (std::size_t at = 0; at < codes.size(); ++at) {
    // compressed-tensors stores value + 8, not two's complement.
    words[at / 8] |= static_cast<std::uint32_t>(codes[at] + 8) << (4 * (at % 8));
  }
  const std::int64_t rows = request.size.rows;
  const std::int64_t columns = request.size.columns;
  return std::vector<RawTensor>{
      TensorOf(TensorRole::kWeight, TensorDtype::kI32, {rows, columns / 8}, words),
      TensorOf(TensorRole::kScale, TensorDtype::kBf16, {rows, columns / GroupOf(request)}, stored),
      TensorOf(TensorRole::kWeightShape, TensorDtype::kI64, {2},
               std::vector<std::int64_t>{rows, columns})};
}

EncodedTensors EncodeAwq(const EncodeRequest& request) {
  const std::int64_t rows = request.size.rows;
  const std::int64_t columns = request.size.columns;
  const std::int64_t group = GroupOf(request);
  const auto width = static_cast<std::size_t>(rows / 8);
  std::vector<std::uint32_t> weights(static_cast<std::size_t>(columns) * width, 0);
  std::vector<std::uint32_t> zeros(static_cast<std::size_t>(columns / group) * width, 0);
  std::vector<F16> scales;
  for (std::int64_t first = 0; first < columns; first += group) {
    const auto line = static_cast<std::size_t>(first / group);
    for (std::int64_t n = 0; n < rows; ++n) {
      const AwqGroup stored = AwqGroupOf(RangeOf(request, n, first, group));
      const float scale = F16ToFloat(stored.scale);
      if (!std::isfinite(scale)) {
        return WrongWeight(request,
                           "weights of a group are too far apart for AWQ's FP16 scale; "
                           "keep this layer in BF16 or use fp8_block");
      }
      scales.push_back(stored.scale);
      PutAwq(zeros, line * width, n, stored.zero);
      const auto zero = static_cast<std::int32_t>(stored.zero);
      for (std::int64_t k = first; k < first + group; ++k) {
        const std::int32_t code = zero + Rounded(WeightAt(request, n, k), scale, -zero, 15 - zero);
        PutAwq(weights, static_cast<std::size_t>(k) * width, n, static_cast<std::uint32_t>(code));
      }
    }
  }
  return std::vector<RawTensor>{
      TensorOf(TensorRole::kWeight, TensorDtype::kI32, {columns, rows / 8}, weights),
      TensorOf(TensorRole::kZeroPoints, TensorDtype::kI32, {columns / group, rows / 8}, zeros),
      TensorOf(TensorRole::kScale, TensorDtype::kF16, {columns / group, rows}, scales)};
}

}  // namespace switchyard::internal
