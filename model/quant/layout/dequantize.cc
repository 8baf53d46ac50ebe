#include "model/quant/layout/dequantize.h"

#include <cstring>

#include "core/format/bf16.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "model/quant/layout/f16.h"

namespace switchyard {
namespace {

template <typename T>
T ElementAt(const RawTensor& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// Bits [4 * nibble, 4 * nibble + 4) of `word`.
std::uint32_t NibbleOf(std::uint32_t word, std::int64_t nibble) {
  return (word >> (4 * static_cast<std::uint32_t>(nibble))) & 0xfU;
}

float SignedInt4(std::uint32_t nibble) {
  const auto value = static_cast<std::int32_t>(nibble);
  return static_cast<float>(value < 8 ? value : value - 16);
}

// One projection while its weights are worked out.
class Weights {
 public:
  explicit Weights(const RawProjection& raw)
      : quant_(raw.quant),
        columns_(raw.size.columns),
        rows_(raw.size.rows),
        group_(raw.quant.group_size == 0 ? raw.size.columns : raw.quant.group_size),
        weight_(*raw.Find(TensorRole::kWeight)),
        scale_(raw.Find(TensorRole::kScale)),
        second_(raw.Find(TensorRole::kScaleSecond)),
        global_(raw.Find(TensorRole::kGlobalScale)),
        zeros_(raw.Find(TensorRole::kZeroPoints)) {}

  [[nodiscard]] float At(std::int64_t n, std::int64_t k) const {
    switch (quant_.layout) {
      case QuantLayout::kBf16:
        break;
      case QuantLayout::kFp8Block:
      case QuantLayout::kFp8BlockCompressed:
        return Fp8(n, k) * FloatAt(*scale_, n / 128 * ((columns_ + 127) / 128) + k / 128);
      case QuantLayout::kFp8Tensor:
        return Fp8(n, k) * FloatAt(*scale_, 0);
      case QuantLayout::kFp8Channel:
        return Fp8(n, k) * FloatAt(*scale_, n);
      case QuantLayout::kNvfp4ModelOpt:
        return Fp4(n, k) * GroupScale(n, k) * FloatAt(*global_, 0);
      case QuantLayout::kNvfp4Compressed:
        return Fp4(n, k) * GroupScale(n, k) / FloatAt(*global_, 0);
      case QuantLayout::kW4Afp8:
        return SignedInt4(PairedNibble(n, k)) * GroupScale(n, k);
      case QuantLayout::kInt8Channel:
      case QuantLayout::kModelSlimW8A8:
      case QuantLayout::kModelSlimW4A4:
        return static_cast<float>(ElementAt<std::int8_t>(weight_, n * columns_ + k)) *
               FloatAt(*scale_, n);
      case QuantLayout::kModelSlimW4A8:
        return ModelSlimInt4(n, k) * ModelSlimScale(n, k);
      case QuantLayout::kPackQuantized:
        return PackedInt4(n, k) * GroupScale(n, k);
      case QuantLayout::kAwq:
        return (AwqNibble(weight_, k, n) - AwqNibble(*zeros_, k / group_, n)) *
               FloatAt(*scale_, k / group_ * rows_ + n);
    }
    return FloatAt(weight_, n * columns_ + k);
  }

 private:
  [[nodiscard]] float Fp8(std::int64_t n, std::int64_t k) const {
    return FloatAt(weight_, n * columns_ + k);
  }

  // Two values of a row in each byte.
  [[nodiscard]] std::uint32_t PairedNibble(std::int64_t n, std::int64_t k) const {
    return NibbleOf(ElementAt<std::uint8_t>(weight_, n * (columns_ / 2) + k / 2), k % 2);
  }
  [[nodiscard]] float Fp4(std::int64_t n, std::int64_t k) const {
    return E2m1ToFloat(static_cast<Fp4E2m1>(PairedNibble(n, k)));
  }

  [[nodiscard]] float GroupScale(std::int64_t n, std::int64_t k) const {
    return FloatAt(*scale_, n * (columns_ / group_) + k / group_);
  }

  // Two rows in each byte.
  [[nodiscard]] float ModelSlimInt4(std::int64_t n, std::int64_t k) const {
    return SignedInt4(NibbleOf(ElementAt<std::uint8_t>(weight_, n / 2 * columns_ + k), n % 2));
  }
  [[nodiscard]] float ModelSlimScale(std::int64_t n, std::int64_t k) const {
    const float row = FloatAt(*scale_, n);
    if (second_ == nullptr) return row;
    const float group = FloatAt(*second_, n * (columns_ / group_) + k / group_);
    return F16ToFloat(FloatToF16(row * group));
  }

  [[nodiscard]] float PackedInt4(std::int64_t n, std::int64_t k) const {
    const auto word = ElementAt<std::uint32_t>(weight_, n * (columns_ / 8) + k / 8);
    return static_cast<float>(static_cast<std::int32_t>(NibbleOf(word, k % 8)) - 8);
  }

  // Column n of row `row` of an AWQ tensor.
  [[nodiscard]] float AwqNibble(const RawTensor& tensor, std::int64_t row, std::int64_t n) const {
    // Where column 8j + i is: the inverse of {0, 2, 4, 6, 1, 3, 5, 7}.
    constexpr std::int64_t kNibbleOfColumn[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto word = ElementAt<std::uint32_t>(tensor, row * (rows_ / 8) + n / 8);
    return static_cast<float>(NibbleOf(word, kNibbleOfColumn[n % 8]));
  }

  const ProjectionQuant& quant_;
  const std::int64_t columns_;
  const std::int64_t rows_;
  const std::int64_t group_;
  const RawTensor& weight_;
  const RawTensor* scale_;
  const RawTensor* second_;
  const RawTensor* global_;
  const RawTensor* zeros_;
};

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

std::vector<float> Dequantize(const RawProjection& projection) {
  const Weights weights(projection);
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(projection.size.rows * projection.size.columns));
  for (std::int64_t n = 0; n < projection.size.rows; ++n) {
    for (std::int64_t k = 0; k < projection.size.columns; ++k) out.push_back(weights.At(n, k));
  }
  return out;
}

}  // namespace switchyard
