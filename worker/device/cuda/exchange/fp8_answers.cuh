// Answers of many tokens in FP8: 1024 columns of a row by a warp, each lane four units of eight
// columns, 32 apart, as normal_combine.cu sums them. Codes, and from `hidden` on an FP32 scale for
// each 128 columns, value for value what the FP8 codec makes of the sums in BF16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/exchange/answer_math.cuh"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/row_codes.cuh"

namespace switchyard::cuda {

constexpr int kAnswerUnits = 4;                        // of a lane
constexpr int kAnswerColumns = 32 * kAnswerUnits * 8;  // of a warp

// The codes of a unit whose sums are rounded to BF16, and the scale that its 16 lanes share.
__device__ __forceinline__ float EncodeAnswerUnit(const uint4& rounded, uint2* codes) {
  const std::uint32_t pairs[4] = {rounded.x, rounded.y, rounded.z, rounded.w};
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t pair : pairs) largest = __vmaxu2(largest, pair & 0x7fff7fffU);
  largest = max(largest & 0xffffU, largest >> 16);
#pragma unroll
  for (int lanes = 1; lanes < 16; lanes *= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
  }
  const Fp8Scale scale = FullFp8Scale::Of(largest);
  std::uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t low = E4m3Pair(__fmul_rn(LowHalf(pairs[2 * i]), scale.factor),
                                       __fmul_rn(HighHalf(pairs[2 * i]), scale.factor));
    const std::uint32_t high = E4m3Pair(__fmul_rn(LowHalf(pairs[2 * i + 1]), scale.factor),
                                        __fmul_rn(HighHalf(pairs[2 * i + 1]), scale.factor));
    words[i] = scale.finite ? low | high << 16 : kE4m3NanCode * 0x01010101U;
  }
  *codes = make_uint2(words[0], words[1]);
  return scale.value;
}

// Sends the sums of a part of a row to `row`, by all lanes of a warp. Two lanes have the codes of
// 16 bytes: the even one stores those of even units, the odd one those of odd units.
__device__ __forceinline__ void SendFp8Sums(const float (&sums)[kAnswerUnits][8], int part,
                                            int hidden, std::byte* row) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const bool odd = lane % 2 != 0;
  uint2 codes[kAnswerUnits];
  std::uint32_t scales[kAnswerUnits];
#pragma unroll
  for (int i = 0; i < kAnswerUnits; ++i) {
    scales[i] = __float_as_uint(EncodeAnswerUnit(RoundedUnit(sums[i]), &codes[i]));
  }
#pragma unroll
  for (int i = 0; i < kAnswerUnits; i += 2) {
    const uint2 give = odd ? codes[i] : codes[i + 1];
    const uint2 keep = odd ? codes[i + 1] : codes[i];
    const uint2 got =
        make_uint2(__shfl_xor_sync(kAllLanes, give.x, 1), __shfl_xor_sync(kAllLanes, give.y, 1));
    const int column = part * kAnswerColumns + ((odd ? i + 1 : i) * 32 + lane / 2 * 2) * 8;
    if (column >= hidden) continue;
    StoreSystem(row + column, odd ? make_uint4(got.x, got.y, keep.x, keep.y)
                                  : make_uint4(keep.x, keep.y, got.x, got.y));
  }
  // A unit of scales for each 512 columns.
#pragma unroll
  for (int i = 0; i < kAnswerUnits; i += 2) {
    const uint4 unit = make_uint4(
        __shfl_sync(kAllLanes, scales[i], 0), __shfl_sync(kAllLanes, scales[i], 16),
        __shfl_sync(kAllLanes, scales[i + 1], 0), __shfl_sync(kAllLanes, scales[i + 1], 16));
    const int column = part * kAnswerColumns + i * 32 * 8;
    if (lane == 0 && column < hidden) StoreSystem(row + hidden + column / 32, unit);
  }
}

// A part of a row that has come: a lane's units from unit `first` on, 32 apart, of `all` in the
// row.
struct Fp8Units {
  __device__ __forceinline__ void Load(const std::byte* row, int first, int all) {
#pragma unroll
    for (int i = 0; i < kAnswerUnits; ++i) {
      const int unit = first + i * 32;
      if (unit >= all) continue;
      codes[i] = *reinterpret_cast<const uint2*>(row + unit * 8);
      scales[i] = *reinterpret_cast<const float*>(row + all * 8 + unit / 16 * 4);
    }
  }
  __device__ __forceinline__ void Add(int first, int all, float (&sums)[kAnswerUnits][8]) const {
#pragma unroll
    for (int i = 0; i < kAnswerUnits; ++i) {
      if (first + i * 32 >= all) continue;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const std::uint32_t word = pair < 2 ? codes[i].x : codes[i].y;
        const float2 values = E4m3PairValues(word >> (pair % 2 * 16) & 0xffffU);
        // As the codec decodes; of NaN other bits, which no sum keeps.
        const std::uint32_t decoded =
            RoundedPair(__fmul_rn(values.x, scales[i]), __fmul_rn(values.y, scales[i]));
        sums[i][2 * pair] = __fadd_rn(sums[i][2 * pair], LowHalf(decoded));
        sums[i][2 * pair + 1] = __fadd_rn(sums[i][2 * pair + 1], HighHalf(decoded));
      }
    }
  }
  uint2 codes[kAnswerUnits];
  float scales[kAnswerUnits];
};

}  // namespace switchyard::cuda
