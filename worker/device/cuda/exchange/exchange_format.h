// The formats in which rows and sums of a step travel between GPUs.
#pragma once

#include <cstdint>

namespace switchyard::cuda {

// How rows of a step travel: codes by the formulas of the codecs (codec.h), scales behind them.
enum class ExchangeFormat : std::uint8_t {
  kFp8,      // E4M3, an FP32 scale for each 128 values
  kBf16,     // as it is; a NaN stays one, with other bits
  kFp8Pow2,  // E4M3, a power of two for each 128 values, in FP32: UE8M0 codes as they are decoded
  kInt8,     // an FP32 scale for the row
  kNvfp4,  // E2M1, an E4M3 scale for each 16 values, times ExchangeStep::global_scale. Where eight
           // codes would look like memory that nothing has landed in, -0 travels as 0
};
constexpr int kExchangeFormats = 5;

// Some of them.
struct ExchangeFormatSet {
  std::uint32_t bits = 0;

  constexpr ExchangeFormatSet() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): most groups have one format
  __host__ __device__ constexpr ExchangeFormatSet(ExchangeFormat format)
      : bits(1U << static_cast<int>(format)) {}
  constexpr void Add(ExchangeFormat format) { bits |= ExchangeFormatSet(format).bits; }
  [[nodiscard]] __host__ __device__ constexpr bool Has(ExchangeFormat format) const {
    return (bits >> static_cast<int>(format) & 1U) != 0;
  }
};

// The bytes of a row up to its scales, and all that are written of it: a multiple of 16.
__host__ __device__ constexpr int DataBytesOf(ExchangeFormat format, int hidden) {
  if (format == ExchangeFormat::kBf16) return hidden * 2;
  return format == ExchangeFormat::kNvfp4 ? hidden / 2 : hidden;
}
__host__ __device__ constexpr int RowBytesOf(ExchangeFormat format, int hidden) {
  const int data = DataBytesOf(format, hidden);
  switch (format) {
    case ExchangeFormat::kBf16:
      return data;
    case ExchangeFormat::kInt8:
      return data + 16;
    case ExchangeFormat::kNvfp4:
      return data + (hidden / 16 + 15) / 16 * 16;
    case ExchangeFormat::kFp8:
    case ExchangeFormat::kFp8Pow2:
      return data + (hidden + 511) / 512 * 16;  // four scales in 16 bytes, the last perhaps in part
  }
  return data;
}

// A warp sends so many columns of a row at once.
__host__ __device__ constexpr int ColumnsOfWarp(ExchangeFormat format) {
  return format == ExchangeFormat::kNvfp4 ? 1024 : 512;
}
__host__ __device__ constexpr int PartsOf(ExchangeFormat format, int hidden) {
  return (hidden + ColumnsOfWarp(format) - 1) / ColumnsOfWarp(format);
}

// How the sums of a rank's experts come back. FP8 takes about half the bytes: a sum is rounded to
// BF16 and then by the FP8 codec, and decoded by it. Only of many tokens.
enum class AnswerFormat : std::uint8_t { kBf16, kFp8 };

}  // namespace switchyard::cuda
