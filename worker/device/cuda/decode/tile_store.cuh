// How the multiplying warps store the sums of a unit (grouped_gemm.h, GemmOutput).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/decode/gemm_shape.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

// `transposed`, `largest`: shared memory for GemmShape's transposed rows and for kRows words.
template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
class TileStore {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  using Sums = MmaSum<kType>[kBlocks][Shape::kAccumulators];
  static constexpr std::uint32_t kWholeWarp = ~0U;

 public:
  __device__ __forceinline__ TileStore(const GemmArguments& args, std::uint32_t transposed,
                                       std::uint32_t largest)
      : args_(args), transposed_(transposed), largest_(largest) {}

  // The scales of INT8 rows, one each: of this thread's rows of a tile, 8 j + 2 (lane % 4) + c.
  __device__ __forceinline__ void LoadRowScales(int slot, int rows) {
    if constexpr (kType == MmaType::kInt8) {
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const int at = 8 * j + 2 * (lane() & 3) + c;
          if (at >= rows) continue;
          const int row = args_.row_index == nullptr ? slot + at : args_.row_index[slot + at];
          row_scales_[j][c] = *reinterpret_cast<const float*>(args_.rows + row * args_.row_stride +
                                                              args_.scale_offset);
        }
      }
    }
  }

  // The `rows` rows of a tile, the first one in `slot`. All multiplying warps call it.
  __device__ __forceinline__ void Store(Sums& sums, int weight_tile, int slot, int rows) {
    if constexpr (kEpilogue == Epilogue::kPlain) {
      StorePlain(sums, weight_tile, slot, rows);
    } else if constexpr (kEpilogue == Epilogue::kFp32) {
      StoreSums(sums, weight_tile, slot, rows);
    } else {
      StoreHidden(sums, weight_tile, slot, rows);
    }
  }

 private:
  __device__ __forceinline__ int group_of_warps() const { return threadIdx.x >> 7; }
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

  // Transposes through shared memory, each warpgroup for itself, and stores 16 bytes at a time.
  __device__ __forceinline__ void StorePlain(Sums& sums, int weight_tile, int slot, int rows) {
    const std::uint32_t tile = transposed_ + group_of_warps() * kRows * Shape::kTransposedRow;
    const int warp = (threadIdx.x >> 5) & 3;
    SyncNamed(2 + group_of_warps(), 128);  // the tile before is stored
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; i++) {
        const int n = b * 64 + warp * 16 + (lane() >> 2) + 8 * ((i >> 1) & 1);
        const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
        StoreShared16(tile + row * Shape::kTransposedRow + n * 2,
                      __bfloat16_as_ushort(__float2bfloat16(sums[b][i])));
      }
    }
    SyncNamed(2 + group_of_warps(), 128);
    constexpr int kChunks = 8 * kBlocks;  // of a row
    std::byte* out = args_.out + (weight_tile * 128 + group_of_warps() * 64) * kBlocks * 2;
    for (int i = threadIdx.x & 127; i < rows * kChunks; i += 128) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      *reinterpret_cast<uint4*>(out + (slot + row) * args_.out_stride + chunk * 16) =
          LoadShared128(tile + row * Shape::kTransposedRow + chunk * 16);
    }
  }

  // Each store of a warp fills four sectors of 32 bytes, so sums need no transposition.
  __device__ __forceinline__ void StoreSums(Sums& sums, int weight_tile, int slot, int rows) {
    const int warp = (threadIdx.x >> 5) & 3;
    const int column =
        weight_tile * 128 * kBlocks + group_of_warps() * 64 * kBlocks + warp * 16 + (lane() >> 2);
#pragma unroll
    for (int i = 0; i < Shape::kAccumulators; i++) {
      const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
      if (row >= rows) continue;
      auto* out = reinterpret_cast<float*>(args_.out + (slot + row) * args_.out_stride);
#pragma unroll
      for (int b = 0; b < kBlocks; b++) {
        float sum;
        if constexpr (kType == MmaType::kInt8) {
          sum = __fmul_rn(__int2float_rn(sums[b][i]), row_scales_[i >> 2][i & 1]);
        } else {
          sum = sums[b][i];
        }
        out[column + b * 64 + 8 * ((i >> 1) & 1)] = sum;
      }
    }
  }

  // silu(gate) * up of 128 hidden values, quantized together.
  __device__ __forceinline__ void StoreHidden(Sums& sums, int weight_tile, int slot, int rows) {
    if constexpr (kEpilogue == Epilogue::kSwiglu) {
      const int warp = (threadIdx.x >> 5) & 3;
      const int column = group_of_warps() * 64 + warp * 16 + (lane() >> 2);
      if (threadIdx.x < kRows) StoreShared32(largest_ + threadIdx.x * 4, 0);
      SyncNamed(1, 256);  // and the tile before is stored
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
          float amax = 0.0F;
#pragma unroll
          for (int i = 4 * j + c; i < 4 * j + 4; i += 2) {
            const float gate = sums[0][i];
            sums[0][i] = __fdividef(gate, 1.0F + __expf(-gate)) * sums[1][i];
            amax = fmaxf(amax, fabsf(sums[0][i]));
          }
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 4));
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 8));
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 16));
          if (lane() < 4) MaxShared(largest_ + (8 * j + 2 * lane() + c) * 4, __float_as_uint(amax));
        }
      }
      SyncNamed(1, 256);
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
        const int row = 8 * j + 2 * (lane() & 3);
        const float2 amax = LoadSharedFloat2(largest_ + row * 4);
        const float x = __fdiv_rn(kE4m3Largest, fmaxf(amax.x, kFp8AmaxMin));
        const float y = __fdiv_rn(kE4m3Largest, fmaxf(amax.y, kFp8AmaxMin));
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const std::uint32_t codes =
              E4m3Pair(sums[0][4 * j + 2 * h] * x, sums[0][4 * j + 2 * h + 1] * y);
          const std::uint32_t at = transposed_ + row * Shape::kTransposedRow + column + 8 * h;
          StoreShared8(at, codes & 0xffU);
          StoreShared8(at + Shape::kTransposedRow, codes >> 8);
        }
      }
      SyncNamed(1, 256);
      if (threadIdx.x < rows) {
        const float amax = fmaxf(LoadSharedFloat(largest_ + threadIdx.x * 4), kFp8AmaxMin);
        auto* scales = reinterpret_cast<float*>(
            args_.out + (slot + threadIdx.x) * args_.out_stride + args_.out_scale_offset);
        scales[weight_tile] = __fdiv_rn(amax, kE4m3Largest);
      }
      for (int i = threadIdx.x; i < rows * 8; i += 256) {
        *reinterpret_cast<uint4*>(args_.out + (slot + i / 8) * args_.out_stride +
                                  weight_tile * 128 + i % 8 * 16) =
            LoadShared128(transposed_ + i / 8 * Shape::kTransposedRow + i % 8 * 16);
      }
      SyncNamed(1, 256);  // largest_ is read before the next tile clears it
    }
  }

  const GemmArguments& args_;
  const std::uint32_t transposed_;
  const std::uint32_t largest_;
  float row_scales_[kRows / 8][2];  // of INT8
};

}  // namespace switchyard::cuda
