#include "model/quant/layout/tensor_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace switchyard {
namespace {

enum class Rule : std::uint8_t { kFinite, kFiniteNotNegative };

// Elements are checked eight bytes at a time, each in a lane of its own. The top bit of a lane is
// the sign, the others the magnitude.
using Lanes = std::uint64_t;

// `value` in every lane.
template <typename Word>
constexpr Lanes Everywhere(Word value) {
  return ~Lanes{0} / static_cast<Word>(~Word{0}) * value;
}
template <typename Word>
inline constexpr Lanes kSigns = Everywhere(static_cast<Word>(Word{1} << (sizeof(Word) * 8 - 1)));
template <typename Word>
inline constexpr Lanes kMagnitudes = ~kSigns<Word>;

// For the float format of Word whose magnitudes from kNotFinite on are infinite or NaN. The sign
// bits of the result are set where `codes` break `rule`; its other bits mean nothing. Sums replace
// comparisons: a carry into the sign bit shows that a magnitude reached its limit, and no carry
// leaves its lane.
template <typename Word, Word kNotFinite>
Lanes Breaks(Lanes codes, Rule rule) {
  constexpr auto kSign = static_cast<Word>(Word{1} << (sizeof(Word) * 8 - 1));
  const Lanes magnitudes = codes & kMagnitudes<Word>;
  const Lanes not_finite = magnitudes + Everywhere(static_cast<Word>(kSign - kNotFinite));
  if (rule == Rule::kFinite) return not_finite;
  const Lanes not_zero = magnitudes + kMagnitudes<Word>;
  return not_finite | (not_zero & codes);
}

// UE8M0 has no sign; only 0xff is NaN.
Lanes BreaksUe8m0(Lanes codes) {
  const Lanes magnitudes = codes & kMagnitudes<std::uint8_t>;
  return (magnitudes + Everywhere(std::uint8_t{1})) & codes;
}

// One INT4 in a byte: value + 8 is below 16 exactly when the value is in [-8, 7].
Lanes BreaksInt4(Lanes values) {
  using Byte = std::uint8_t;
  const Lanes low_bits = values & kMagnitudes<Byte>;
  const Lanes shifted = (low_bits + Everywhere(Byte{8})) ^ (values & kSigns<Byte>);
  const Lanes shifted_low_bits = shifted & kMagnitudes<Byte>;
  return shifted | (shifted_low_bits + Everywhere(Byte{0x70}));
}

// The index of the first element for which `breaks` sets the sign bit; -1 when there is none.
// Blocks have one length and no branch inside, so that the compiler vectorizes them. The last block
// is filled with zeros, which no rule forbids.
template <typename Word, typename Function>
std::int64_t FirstThatBreaks(std::span<const std::byte> bytes, Function breaks) {
  std::array<Lanes, 64> block{};
  constexpr std::size_t kBytes = sizeof(block);
  for (std::size_t at = 0; at < bytes.size(); at += kBytes) {
    const std::size_t here = std::min(kBytes, bytes.size() - at);
    if (here < kBytes) block.fill(0);
    std::memcpy(block.data(), bytes.data() + at, here);
    Lanes any = 0;
    for (const Lanes lanes : block) any |= breaks(lanes);
    if ((any & kSigns<Word>) == 0) continue;
    for (std::size_t i = at; i < at + here; i += sizeof(Word)) {
      Word code = 0;
      std::memcpy(&code, bytes.data() + i, sizeof(code));
      if ((breaks(Lanes{code}) >> (sizeof(Word) * 8 - 1) & 1U) != 0) {
        return static_cast<std::int64_t>(i / sizeof(Word));
      }
    }
  }
  return -1;
}

template <typename Word, Word kNotFinite>
std::int64_t FirstFloatThatBreaks(std::span<const std::byte> bytes, Rule rule) {
  if (rule == Rule::kFinite) {
    return FirstThatBreaks<Word>(
        bytes, [](Lanes codes) { return Breaks<Word, kNotFinite>(codes, Rule::kFinite); });
  }
  return FirstThatBreaks<Word>(
      bytes, [](Lanes codes) { return Breaks<Word, kNotFinite>(codes, Rule::kFiniteNotNegative); });
}

// Integers break no rule.
std::int64_t FirstThatBreaks(const RawTensor& tensor, Rule rule) {
  switch (tensor.dtype) {
    case TensorDtype::kF32:
      return FirstFloatThatBreaks<std::uint32_t, 0x7f800000U>(tensor.bytes, rule);
    case TensorDtype::kBf16:
      return FirstFloatThatBreaks<std::uint16_t, 0x7f80U>(tensor.bytes, rule);
    case TensorDtype::kF16:
      return FirstFloatThatBreaks<std::uint16_t, 0x7c00U>(tensor.bytes, rule);
    case TensorDtype::kF8E4m3:
      return FirstFloatThatBreaks<std::uint8_t, 0x7fU>(tensor.bytes, rule);
    case TensorDtype::kF8E8m0:
      return FirstThatBreaks<std::uint8_t>(tensor.bytes, BreaksUe8m0);
    default:
      return -1;
  }
}

std::optional<ValueFault> FloatFault(const RawTensor& tensor, Rule rule, const char* wanted) {
  const std::int64_t index = FirstThatBreaks(tensor, rule);
  if (index < 0) return std::nullopt;
  return ValueFault{index, absl::StrCat("is ", FloatAt(tensor, index), "; ", wanted)};
}

// The single scale of a whole tensor: even a tensor of zeros has one above zero, and kernels divide
// by some of them.
std::optional<ValueFault> ScalarFault(const RawTensor& tensor) {
  const float value = FloatAt(tensor, 0);
  if (std::isfinite(value) && value > 0) return std::nullopt;
  return ValueFault{0, absl::StrCat("is ", value, "; a scale is finite and above zero")};
}

std::optional<ValueFault> OffsetFault(const RawTensor& tensor) {
  const std::size_t width = TensorDtypeBits(tensor.dtype) / 8;
  for (std::size_t i = 0; i < tensor.bytes.size() / width; ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const float value = FloatAt(tensor, index);
    if (value == 0) continue;
    return ValueFault{index, absl::StrCat("is ", value,
                                          "; only symmetric weights are served, whose offsets are "
                                          "zero")};
  }
  return std::nullopt;
}

std::int64_t IntAt(const RawTensor& tensor, std::size_t index) {
  if (tensor.dtype == TensorDtype::kI64) {
    std::int64_t value = 0;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  }
  std::int32_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

std::optional<ValueFault> ShapeFault(const RawTensor& tensor, const ProjectionSize& size) {
  const std::array<std::int64_t, 2> wanted{size.rows, size.columns};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t value = IntAt(tensor, i);
    if (value == wanted[i]) continue;
    return ValueFault{static_cast<std::int64_t>(i),
                      absl::StrCat("is ", value, "; config.json implies the shape [",
                                   absl::StrJoin(wanted, ", "), "]")};
  }
  return std::nullopt;
}

std::optional<ValueFault> WeightFault(const RawTensor& tensor, const QuantLayoutInfo& layout) {
  if (!layout.int4_in_bytes) {
    return FloatFault(tensor, Rule::kFinite, "weights are finite numbers");
  }
  const std::int64_t index = FirstThatBreaks<std::uint8_t>(tensor.bytes, BreaksInt4);
  if (index < 0) return std::nullopt;
  const auto value = static_cast<std::int8_t>(tensor.bytes[static_cast<std::size_t>(index)]);
  return ValueFault{index, absl::StrCat("is ", static_cast<int>(value), "; an INT4 is in [-8, 7]")};
}

std::optional<ValueFault> ScaleFault(const RawTensor& tensor, const QuantLayoutInfo& layout) {
  if (layout.scale_unit == ScaleUnit::kTensor) return ScalarFault(tensor);
  if (layout.scales_may_be_negative)
    return FloatFault(tensor, Rule::kFinite, "scales are finite numbers");
  return FloatFault(tensor, Rule::kFiniteNotNegative, "scales are finite and not negative");
}

}  // namespace

std::optional<ValueFault> FindValueFault(const RawTensor& tensor, const RawProjection& projection) {
  const QuantLayoutInfo& layout = QuantLayoutInfoOf(projection.quant.layout);
  switch (tensor.role) {
    case TensorRole::kWeight:
      return WeightFault(tensor, layout);
    case TensorRole::kScale:
      return ScaleFault(tensor, layout);
    case TensorRole::kScaleSecond:
      return FloatFault(tensor, Rule::kFiniteNotNegative, "scales are finite and not negative");
    case TensorRole::kGlobalScale:
    case TensorRole::kInputScale:
      return ScalarFault(tensor);
    case TensorRole::kBias:
    case TensorRole::kScaleBias:
      return FloatFault(tensor, Rule::kFinite, "biases are finite numbers");
    case TensorRole::kOffset:
    case TensorRole::kOffsetSecond:
      return OffsetFault(tensor);
    case TensorRole::kWeightShape:
      return ShapeFault(tensor, projection.size);
    case TensorRole::kZeroPoints:
      break;  // every nibble is one
  }
  return std::nullopt;
}

}  // namespace switchyard
