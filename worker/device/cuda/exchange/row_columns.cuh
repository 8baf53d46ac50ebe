// Columns of a row of BF16, as a warp reads them and as they travel.
#pragma once

#include <cstdint>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_shape.h"
#include "worker/device/cuda/row_access.cuh"

namespace switchyard::cuda {

// The columns of a row that a warp has, as 16-byte units at these places of the row; -1: none.
template <ExchangeFormat kFormat>
struct Units {
  static constexpr int kOfLane = 2;

  __device__ __forceinline__ Units(int hidden, int part) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (kFormat == ExchangeFormat::kFp8) {
      const int column = part * kColumnsOfWarp + lane * 16;
      at[0] = column < hidden ? column : -1;
      at[1] = lane == 0 ? hidden + part * 16 : -1;  // of the scales
    } else {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int column = part * kColumnsOfWarp + (i * 32 + lane) * 8;
        at[i] = column < hidden ? column * 2 : -1;
      }
    }
  }
  int at[kOfLane];
};

// Those columns of a row of BF16, as they are sent. Load asks for them, Encode waits.
template <ExchangeFormat kFormat>
class Columns {
 public:
  __device__ __forceinline__ Columns(const std::uint16_t* row, int hidden, int part) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (kFormat == ExchangeFormat::kFp8) {
      const int column = part * kColumnsOfWarp + lane * 16;
      chunk_ = LoadChunk<true>(row + column, hidden - column);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = part * kColumnsOfWarp + (i * 32 + lane) * 8;
        if (column < hidden) words_[i] = __ldg(reinterpret_cast<const uint4*>(row + column));
      }
    }
  }

  // The bytes of the units. FP8: as the codec's (codec_encode.cu), value for value.
  __device__ __forceinline__ void Encode(uint4 (&out)[2]) const {
    if constexpr (kFormat == ExchangeFormat::kBf16) {
#pragma unroll
      for (int i = 0; i < 2; ++i) out[i] = WithoutPoison(words_[i]);
    } else {
      std::uint32_t largest = LargestMagnitude(chunk_);
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) {
        largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
      }
      const bool finite = largest < kBf16Infinity;
      const float amax = fmaxf(kFp8AmaxMin, Bf16Value(largest));
      const float factor = __fdiv_rn(kE4m3Largest, amax);
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t low = E4m3Pair(__fmul_rn(Bf16Value(chunk_.Bits(4 * i)), factor),
                                           __fmul_rn(Bf16Value(chunk_.Bits(4 * i + 1)), factor));
        const std::uint32_t high = E4m3Pair(__fmul_rn(Bf16Value(chunk_.Bits(4 * i + 2)), factor),
                                            __fmul_rn(Bf16Value(chunk_.Bits(4 * i + 3)), factor));
        words[i] = finite ? low | high << 16 : kE4m3NanCode * 0x01010101U;
      }
      out[0] = make_uint4(words[0], words[1], words[2], words[3]);
      const std::uint32_t scale =
          finite ? __float_as_uint(__fdiv_rn(amax, kE4m3Largest)) : kFloatNanBits;
      out[1] = make_uint4(scale, __shfl_sync(kAllLanes, scale, 8),
                          __shfl_sync(kAllLanes, scale, 16), __shfl_sync(kAllLanes, scale, 24));
    }
  }

 private:
  Chunk chunk_;
  uint4 words_[2];
};

}  // namespace switchyard::cuda
