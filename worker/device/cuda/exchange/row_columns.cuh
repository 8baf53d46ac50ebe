// Columns of a row of BF16, as a warp reads them and as they travel: value for value what the
// codecs write (codec_encode.cu).
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_shape.h"
#include "worker/device/cuda/row_access.cuh"
#include "worker/device/cuda/row_codes.cuh"

namespace switchyard::cuda {

// The columns of a row that a warp has, as 16-byte units at these places of the row; -1: none.
template <ExchangeFormat kFormat>
struct Units {
  static constexpr int kOfLane = 2;

  __device__ __forceinline__ Units(int hidden, int part) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int data = DataBytesOf(kFormat, hidden);
    if constexpr (kFormat == ExchangeFormat::kBf16) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int column = part * ColumnsOfWarp(kFormat) + (i * 32 + lane) * 8;
        at[i] = column < hidden ? column * 2 : -1;
      }
    } else if constexpr (kFormat == ExchangeFormat::kNvfp4) {
      const int column = part * ColumnsOfWarp(kFormat) + lane * 32;
      at[0] = column < hidden ? column / 2 : -1;
      at[1] = lane % 8 == 0 && column < hidden ? data + column / 16 : -1;  // of the scales
    } else {
      const int column = part * ColumnsOfWarp(kFormat) + lane * 16;
      at[0] = column < hidden ? column : -1;
      const bool has_scales = lane == 0 && (kFormat != ExchangeFormat::kInt8 || part == 0);
      at[1] = has_scales ? data + part * 16 : -1;
    }
  }
  int at[kOfLane];
};

// Those columns of a row of BF16, as they are sent. Load asks for them, Encode waits.
template <ExchangeFormat kFormat>
class Columns {
 public:
  __device__ __forceinline__ Columns(const std::uint16_t* row, int hidden, int part)
      : row_(row), hidden_(hidden) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (kFormat == ExchangeFormat::kBf16) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = part * ColumnsOfWarp(kFormat) + (i * 32 + lane) * 8;
        if (column < hidden) words_[i] = __ldg(reinterpret_cast<const uint4*>(row + column));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int column = part * ColumnsOfWarp(kFormat) + (lane * kChunks + i) * kChunk;
        chunks_[i] = LoadChunk<true>(row + column, hidden - column);
      }
    }
  }

  // The bytes of the units.
  __device__ __forceinline__ void Encode(float global_scale, uint4 (&out)[2]) const {
    if constexpr (kFormat == ExchangeFormat::kBf16) {
#pragma unroll
      for (int i = 0; i < 2; ++i) out[i] = WithoutPoison(words_[i]);
    } else if constexpr (kFormat == ExchangeFormat::kInt8) {
      EncodeInt8(out);
    } else if constexpr (kFormat == ExchangeFormat::kNvfp4) {
      EncodeNvfp4(global_scale, out);
    } else {
      EncodeFp8(out);
    }
  }

 private:
  static constexpr int kChunks = ColumnsOfWarp(kFormat) / 32 / kChunk;

  // Eight lanes have the values of a scale.
  __device__ __forceinline__ void EncodeFp8(uint4 (&out)[2]) const {
    std::uint32_t largest = LargestMagnitude(chunks_[0]);
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) {
      largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    }
    using Scales =
        std::conditional_t<kFormat == ExchangeFormat::kFp8Pow2, Pow2Fp8Scale, FullFp8Scale>;
    const Fp8Scale scale = Scales::Of(largest);
    std::uint32_t words[4];
    EncodeFp8Chunk(chunks_[0], scale, words);
    out[0] = make_uint4(words[0], words[1], words[2], words[3]);
    const std::uint32_t bits = __float_as_uint(scale.value);
    out[1] = make_uint4(bits, __shfl_sync(kAllLanes, bits, 8), __shfl_sync(kAllLanes, bits, 16),
                        __shfl_sync(kAllLanes, bits, 24));
  }

  // Each warp looks through the whole row for its largest value.
  __device__ __forceinline__ void EncodeInt8(uint4 (&out)[2]) const {
    std::uint32_t largest = 0;
#pragma unroll 4
    for (int c = static_cast<int>(threadIdx.x % 32) * 8; c < hidden_; c += 256) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(row_ + c));
      for (const std::uint32_t pair : {words.x, words.y, words.z, words.w}) {
        largest = __vmaxu2(largest, pair & 0x7fff7fffU);
      }
    }
    largest = __reduce_max_sync(kAllLanes, max(largest & 0xffffU, largest >> 16));
    const Int8Scale scale = Int8Scale::Of(largest);
    std::uint32_t words[4];
    EncodeInt8Chunk(chunks_[0], scale, words);
    out[0] = make_uint4(words[0], words[1], words[2], words[3]);
    out[1] = make_uint4(__float_as_uint(scale.value), 0, 0, 0);
  }

  // A lane has two scales, and eight lanes a unit of them.
  __device__ __forceinline__ void EncodeNvfp4(float global_scale, uint4 (&out)[2]) const {
    std::uint32_t codes[2][2];
    std::uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales |= EncodeNvfp4Chunk(chunks_[i], global_scale, codes[i]) << (8 * i);
    }
    out[0] = CodesWithoutPoison(make_uint4(codes[0][0], codes[0][1], codes[1][0], codes[1][1]));
    scales |= __shfl_down_sync(kAllLanes, scales, 1) << 16;
    const auto first = static_cast<int>(threadIdx.x % 32) / 8 * 8;
    out[1] = make_uint4(
        __shfl_sync(kAllLanes, scales, first), __shfl_sync(kAllLanes, scales, first + 2),
        __shfl_sync(kAllLanes, scales, first + 4), __shfl_sync(kAllLanes, scales, first + 6));
  }

  const std::uint16_t* const row_;
  const int hidden_;
  Chunk chunks_[kChunks];
  uint4 words_[2];
};

}  // namespace switchyard::cuda
