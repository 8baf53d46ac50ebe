#include "model/quant/layout/row_decoders.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "core/format/bf16.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"

namespace switchyard::internal {
namespace {

const std::uint8_t* BytesOf(const RawProjection& raw, TensorRole role) {
  return reinterpret_cast<const std::uint8_t*>(raw.Find(role)->bytes.data());
}

// Tables, because a checkpoint has billions of codes but at most 256 different ones.
std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = E4m3ToFloat(static_cast<Fp8E4m3>(code));
  }
  return table;
}

std::array<float, 16> MakeE2m1Table() {
  std::array<float, 16> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = E2m1ToFloat(static_cast<Fp4E2m1>(code));
  }
  return table;
}

// Shifting the nibble to the top and back extends its sign.
float SignedInt4(std::uint32_t nibble) {
  return static_cast<float>(static_cast<std::int32_t>(nibble << 28) >> 28);
}

// memcpy, because a tensor may begin at any byte of its file.
std::uint32_t WordAt(const std::uint8_t* bytes, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes + index * 4, sizeof(word));
  return word;
}

template <typename Decode>
void DecodePairs(const RawProjection& raw, std::int64_t n, float* out, Decode decode) {
  const std::int64_t columns = raw.size.columns;
  const std::uint8_t* in = BytesOf(raw, TensorRole::kWeight) + n * (columns / 2);
  for (std::int64_t k = 0; k < columns; k += 2) {
    const std::uint32_t both = in[k / 2];
    out[k] = decode(both & 0xfU);
    out[k + 1] = decode(both >> 4U);
  }
}

}  // namespace

// ValuesOf copies BF16 weights instead; only Dequantize comes here.
void DecodeBf16(const RawProjection& raw, std::int64_t n, float* out) {
  const RawTensor& weight = *raw.Find(TensorRole::kWeight);
  const std::int64_t columns = raw.size.columns;
  for (std::int64_t k = 0; k < columns; ++k) out[k] = FloatAt(weight, n * columns + k);
}

void DecodeE4m3(const RawProjection& raw, std::int64_t n, float* out) {
  static const std::array<float, 256> kTable = MakeE4m3Table();
  const std::uint8_t* in = BytesOf(raw, TensorRole::kWeight) + n * raw.size.columns;
  for (std::int64_t k = 0; k < raw.size.columns; ++k) out[k] = kTable[in[k]];
}

void DecodeInt8(const RawProjection& raw, std::int64_t n, float* out) {
  const auto* in = reinterpret_cast<const std::int8_t*>(BytesOf(raw, TensorRole::kWeight)) +
                   n * raw.size.columns;
  for (std::int64_t k = 0; k < raw.size.columns; ++k) out[k] = static_cast<float>(in[k]);
}

void DecodeE2m1Pairs(const RawProjection& raw, std::int64_t n, float* out) {
  static const std::array<float, 16> kTable = MakeE2m1Table();
  DecodePairs(raw, n, out, [](std::uint32_t nibble) { return kTable[nibble]; });
}

void DecodeInt4Pairs(const RawProjection& raw, std::int64_t n, float* out) {
  DecodePairs(raw, n, out, SignedInt4);
}

void DecodeInt4RowPairs(const RawProjection& raw, std::int64_t n, float* out) {
  const std::int64_t columns = raw.size.columns;
  const std::uint8_t* in = BytesOf(raw, TensorRole::kWeight) + n / 2 * columns;
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::uint32_t both = in[k];
    out[k] = SignedInt4(both & 0xfU);
    out[columns + k] = SignedInt4(both >> 4U);
  }
}

void DecodeInt4Words(const RawProjection& raw, std::int64_t n, float* out) {
  const std::int64_t columns = raw.size.columns;
  const std::uint8_t* in = BytesOf(raw, TensorRole::kWeight);
  for (std::int64_t k = 0; k < columns; k += 8) {
    const std::uint32_t word = WordAt(in, (n * columns + k) / 8);
    for (std::int64_t i = 0; i < 8; ++i) {
      const auto code = static_cast<std::int32_t>((word >> static_cast<unsigned>(4 * i)) & 0xfU);
      out[k + i] = static_cast<float>(code - 8);
    }
  }
}

void DecodeAwqWords(const RawProjection& raw, std::int64_t n, float* out) {
  // The shift of row 8j + i: four times the inverse of {0, 2, 4, 6, 1, 3, 5, 7}.
  constexpr std::array<std::uint32_t, 8> kShiftOfRow{0, 16, 4, 20, 8, 24, 12, 28};
  const std::uint8_t* codes = BytesOf(raw, TensorRole::kWeight);
  const std::uint8_t* zeros = BytesOf(raw, TensorRole::kZeroPoints);
  const std::int64_t columns = raw.size.columns;
  const std::int64_t group = GroupSizeOf(raw.quant, columns);
  const std::int64_t words = raw.size.rows / 8;
  // Eight rows at once read each word only once. The words of successive k are far apart in memory,
  // but the lines that one strip touches serve the next 15 strips from the cache.
  for (std::int64_t first = 0; first < columns; first += group) {
    const std::uint32_t zero_word = WordAt(zeros, first / group * words + n / 8);
    for (std::int64_t k = first; k < first + group; ++k) {
      const std::uint32_t word = WordAt(codes, k * words + n / 8);
      for (std::size_t i = 0; i < kShiftOfRow.size(); ++i) {
        const auto code = static_cast<float>((word >> kShiftOfRow[i]) & 0xfU);
        const auto zero = static_cast<float>((zero_word >> kShiftOfRow[i]) & 0xfU);
        out[static_cast<std::int64_t>(i) * columns + k] = code - zero;
      }
    }
  }
}

}  // namespace switchyard::internal
