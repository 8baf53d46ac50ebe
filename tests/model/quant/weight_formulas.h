// The weights of one projection, each from its own formula: slow and obvious, and shares nothing
// with the decoders and scales in model/quant/layout. Dequantize and ValuesOf are compared with it.
//
//   bf16                 w = weight
//   fp8_block            w = e4m3(weight) * scale of its block; "inv" or not, it is multiplied
//   fp8_tensor, channel  w = e4m3(weight) * scale
//   modelopt_nvfp4       w = (e2m1 * e4m3(weight_scale)) * weight_scale_2
//   compressed nvfp4     w = (e2m1 * e4m3(weight_scale)) / weight_global_scale
//                        even k in the low nibble
//   w4afp8               w = int4 * scale of its 128; even k in the low nibble, two's complement
//   int8, modelslim_w8a8, _w4a4      w = int8 * scale of its row
//   modelslim_w4a8       w = int4 * scale; even row in the low nibble, two's complement. With
//                        groups the scale is fp32(fp16(scale * second)), as NPU kernels compute it
//   compressed int4      w = (nibble - 8) * scale of its group; nibble i of word j is k = 8j + i
//   awq                  w = (nibble - zero) * scale of its group; nibble i of word j is row
//                        8j + {0,2,4,6,1,3,5,7}[i]
//
// Every product and quotient is one FP32 operation, rounded to nearest even, left to right.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/format/fp4.h"
#include "model/quant/layout/f16.h"
#include "model/quant/layout/raw_projection.h"

namespace switchyard::testing {

template <typename T>
T StoredAt(const RawTensor& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// Bits [4 * nibble, 4 * nibble + 4) of `word`.
inline std::uint32_t NibbleOf(std::uint32_t word, std::int64_t nibble) {
  return (word >> (4 * static_cast<std::uint32_t>(nibble))) & 0xfU;
}

inline float Int4Of(std::uint32_t nibble) {
  const auto value = static_cast<std::int32_t>(nibble);
  return static_cast<float>(value < 8 ? value : value - 16);
}

class WeightFormulas {
 public:
  explicit WeightFormulas(const RawProjection& raw)
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
        return Int4Of(PairedNibble(n, k)) * GroupScale(n, k);
      case QuantLayout::kInt8Channel:
      case QuantLayout::kModelSlimW8A8:
      case QuantLayout::kModelSlimW4A4:
        return static_cast<float>(StoredAt<std::int8_t>(weight_, n * columns_ + k)) *
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
    return NibbleOf(StoredAt<std::uint8_t>(weight_, n * (columns_ / 2) + k / 2), k % 2);
  }
  [[nodiscard]] float Fp4(std::int64_t n, std::int64_t k) const {
    return E2m1ToFloat(static_cast<Fp4E2m1>(PairedNibble(n, k)));
  }

  [[nodiscard]] float GroupScale(std::int64_t n, std::int64_t k) const {
    return FloatAt(*scale_, n * (columns_ / group_) + k / group_);
  }

  // Two rows in each byte.
  [[nodiscard]] float ModelSlimInt4(std::int64_t n, std::int64_t k) const {
    return Int4Of(NibbleOf(StoredAt<std::uint8_t>(weight_, n / 2 * columns_ + k), n % 2));
  }
  [[nodiscard]] float ModelSlimScale(std::int64_t n, std::int64_t k) const {
    const float row = FloatAt(*scale_, n);
    if (second_ == nullptr) return row;
    const float group = FloatAt(*second_, n * (columns_ / group_) + k / group_);
    return F16ToFloat(FloatToF16(row * group));
  }

  [[nodiscard]] float PackedInt4(std::int64_t n, std::int64_t k) const {
    const auto word = StoredAt<std::uint32_t>(weight_, n * (columns_ / 8) + k / 8);
    return static_cast<float>(static_cast<std::int32_t>(NibbleOf(word, k % 8)) - 8);
  }

  // Column n of row `row` of an AWQ tensor.
  [[nodiscard]] float AwqNibble(const RawTensor& tensor, std::int64_t row, std::int64_t n) const {
    // Where column 8j + i is: the inverse of {0, 2, 4, 6, 1, 3, 5, 7}.
    constexpr std::int64_t kNibbleOfColumn[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto word = StoredAt<std::uint32_t>(tensor, row * (rows_ / 8) + n / 8);
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

// Row-major [size.rows, size.columns].
inline std::vector<float> WeightsByFormula(const RawProjection& projection) {
  const WeightFormulas weights(projection);
  std::vector<float> out;
  for (std::int64_t n = 0; n < projection.size.rows; ++n) {
    for (std::int64_t k = 0; k < projection.size.columns; ++k) out.push_back(weights.At(n, k));
  }
  return out;
}

}  // namespace switchyard::testing
