#include "model/quant/layout/scale_range.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace switchyard {
namespace {

constexpr double kF32Max = std::numeric_limits<float>::max();
constexpr double kF16Max = 65504;

struct Largest {
  std::int64_t index = 0;
  double magnitude = 0;
};

// Magnitudes of a float format are ordered like their codes without the sign bit, `sign`; 0 for
// UE8M0, which has none. Finding the maximum and its place are two loops, so that the compiler
// vectorizes the first.
template <typename Word>
std::int64_t IndexOfLargest(const RawTensor& tensor, std::int64_t begin, std::int64_t end,
                            Word sign) {
  const auto code_at = [&](std::int64_t i) {
    Word code = 0;
    std::memcpy(&code, tensor.bytes.data() + static_cast<std::size_t>(i) * sizeof(code),
                sizeof(code));
    return static_cast<Word>(code & static_cast<Word>(~sign));
  };
  Word most = 0;
  for (std::int64_t i = begin; i < end; ++i) most = std::max(most, code_at(i));
  std::int64_t index = begin;
  while (code_at(index) != most) ++index;
  return index;
}

Largest LargestIn(const RawTensor& tensor, std::int64_t begin, std::int64_t end) {
  std::int64_t index = begin;
  switch (tensor.dtype) {
    case TensorDtype::kF32:
      index = IndexOfLargest<std::uint32_t>(tensor, begin, end, 0x80000000U);
      break;
    case TensorDtype::kBf16:
    case TensorDtype::kF16:
      index = IndexOfLargest<std::uint16_t>(tensor, begin, end, 0x8000U);
      break;
    case TensorDtype::kF8E8m0:
      index = IndexOfLargest<std::uint8_t>(tensor, begin, end, 0);
      break;
    default:
      index = IndexOfLargest<std::uint8_t>(tensor, begin, end, 0x80U);
      break;
  }
  return {index, std::fabs(static_cast<double>(FloatAt(tensor, index)))};
}

std::int64_t ElementsOf(const RawTensor& tensor) {
  return static_cast<std::int64_t>(tensor.bytes.size() * 8 / TensorDtypeBits(tensor.dtype));
}

ScaleFault TooLarge(TensorRole role, const RawTensor& tensor, std::int64_t index,
                    const std::string& why) {
  return {role, {index, absl::StrCat("is ", FloatAt(tensor, index), "; ", why)}};
}

// Checks a row's scale times that of each of its groups, which NPUs compute in FP16.
std::optional<ScaleFault> GroupsFault(const RawTensor& rows, const RawTensor& groups) {
  const std::int64_t count = ElementsOf(rows);
  const std::int64_t in_row = ElementsOf(groups) / count;
  for (std::int64_t row = 0; row < count; ++row) {
    const Largest group = LargestIn(groups, row * in_row, (row + 1) * in_row);
    const auto scale = static_cast<double>(FloatAt(rows, row));
    if (group.magnitude * scale <= kF16Max) continue;
    return TooLarge(TensorRole::kScaleSecond, groups, group.index,
                    absl::StrCat("times the scale of its row, ", scale,
                                 ", it is beyond FP16, in which NPUs compute the product"));
  }
  return std::nullopt;
}

// The factor of all scales: 1, or the global scale where the layout has one. In double, so that the
// reciprocal of a tiny scale is compared and not infinite.
double GlobalFactor(const RawProjection& projection) {
  const RawTensor* global = projection.Find(TensorRole::kGlobalScale);
  if (global == nullptr) return 1;
  const auto scale = static_cast<double>(FloatAt(*global, 0));
  const bool divides =
      QuantLayoutInfoOf(projection.quant.layout).global_scale == GlobalScale::kDivides;
  return divides ? 1 / scale : scale;
}

}  // namespace

std::optional<ScaleFault> FindScaleFault(const RawProjection& projection) {
  const RawTensor* scales = projection.Find(TensorRole::kScale);
  if (scales == nullptr) return std::nullopt;
  const RawTensor* groups = projection.Find(TensorRole::kScaleSecond);
  if (groups != nullptr) return GroupsFault(*scales, *groups);
  const double code = QuantLayoutInfoOf(projection.quant.layout).largest_code;
  const double factor = GlobalFactor(projection);
  const Largest scale = LargestIn(*scales, 0, ElementsOf(*scales));
  if (factor <= kF32Max && code * scale.magnitude * factor <= kF32Max) return std::nullopt;
  if (factor != 1) {
    const RawTensor& global = *projection.Find(TensorRole::kGlobalScale);
    return TooLarge(
        TensorRole::kGlobalScale, global, 0,
        absl::StrCat("with a group's scale of ", scale.magnitude, " it gives weights beyond FP32"));
  }
  return TooLarge(TensorRole::kScale, *scales, scale.index,
                  absl::StrCat("times the largest code, ", code, ", it gives weights beyond FP32"));
}

}  // namespace switchyard
