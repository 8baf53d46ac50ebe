// A tile's sums are rounded, put through SwiGLU and quantized here, and then stored.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "worker/device/cuda/gemm/prefill_shared.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/swiglu_math.cuh"

namespace switchyard::cuda {

struct TileOut {
  int row = 0;   // of the warp
  int rows = 0;  // from there on are stored, of the warp's 16
  int column = 0;
};

// A warp's 16 rows x 64 * Boxes columns of sums, rounded to BF16. They pass through shared memory,
// so that every row leaves in 128 contiguous bytes.
template <int Boxes>
__device__ __forceinline__ void Store(const float* sums, std::uint8_t* memory,
                                      const PrefillArgs& args, const TileOut& tile) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t base = sm90::SharedAddress(memory);
#pragma unroll
  for (int box = 0; box < Boxes; ++box) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = sums + (box * 8 + j) * 4 + 2 * i;
        const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair[0], pair[1]);
        m[i] = *reinterpret_cast<const std::uint32_t*>(&rounded);
      }
      sm90::StoreMatrices(base + lane % 16 * 128 + (((j + lane / 16) ^ (lane % 8)) << 4), m[0],
                          m[1], m[2], m[3]);
    }
    __syncwarp();
    const int column = tile.column + box * 64 + lane % 8 * 8;
    auto* to = static_cast<__nv_bfloat16*>(args.out) +
               std::int64_t{tile.row + lane / 8} * args.out_stride + column;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const uint4 values =
          *reinterpret_cast<const uint4*>(memory + row * 128 + ((lane % 8 ^ row % 8) << 4));
      if (row < tile.rows && column < args.n) {
        *reinterpret_cast<uint4*>(to + 4 * i * args.out_stride) = values;
      }
    }
  }
}

// A warp's 16 rows x 2 * Count columns of sums as they are, 32 columns at a time: every row leaves
// in 128 contiguous bytes.
template <int Count>
__device__ __forceinline__ void StoreSums(const float* sums, std::uint8_t* memory,
                                          const PrefillArgs& args, const TileOut& tile) {
  const int lane = threadIdx.x % 32;
  float* const to = static_cast<float*>(args.out) + (tile.row + lane / 8) * args.out_stride +
                    tile.column + lane % 8 * 4;
#pragma unroll
  for (int piece = 0; piece < Count / 16; ++piece) {
    if (piece * 32 % 128 == 0 && tile.column + piece * 32 >= args.n) return;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Column 8 * (i / 2) + 2 * (lane % 4) of the 32, in chunks of 16 bytes that the row shuffles.
      const int row = lane / 4 + i % 2 * 8;
      const int chunk = i / 2 * 2 + lane % 4 / 2;
      const float* pair = sums + piece * 16 + i * 2;
      *reinterpret_cast<float2*>(memory + row * 128 + ((chunk ^ row % 8) << 4) + lane % 2 * 8) =
          make_float2(pair[0], pair[1]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const float4 four =
          *reinterpret_cast<const float4*>(memory + row * 128 + ((lane % 8 ^ row % 8) << 4));
      if (row < tile.rows) {
        *reinterpret_cast<float4*>(to + 4 * i * args.out_stride + piece * 32) = four;
      }
    }
  }
}

// 64 gate and up sums of a thread become silu(gate) * up, rounded to BF16, then E4M3 with a scale
// for each row of 128 columns: amax' = max(1e-4, amax), scale = amax' / 448, q = e4m3(x * (448 /
// amax')). A row with a NaN or an infinity has scale NaN and codes 0x7f.
struct RowHalves {
  float low;   // of row lane / 4 of the warp
  float high;  // of row lane / 4 + 8
};

// Gate becomes h, rounded to BF16.
__device__ __forceinline__ void HiddenPair(float& gate0, float& gate1, float up0, float up1) {
  const std::uint32_t pair = SwigluPair(gate0, up0, gate1, up1);
  gate0 = __uint_as_float(pair << 16);
  gate1 = __uint_as_float(pair & 0xffff0000U);
}

// The largest magnitude of each row, over the four lanes that share it, as the bits of a float: so
// NaN and infinity come out on top.
__device__ __forceinline__ RowHalves RowMaxima(const float (&values)[64]) {
  unsigned most[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    most[i / 2 % 2] = max(most[i / 2 % 2], __float_as_uint(values[i]) & 0x7fffffffU);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    most[half] = max(most[half], __shfl_xor_sync(~0U, most[half], 1));
    most[half] = max(most[half], __shfl_xor_sync(~0U, most[half], 2));
  }
  return {__uint_as_float(most[0]), __uint_as_float(most[1])};
}

struct RowScale {
  float scale;
  float factor;
};

__device__ __forceinline__ RowScale ScaleOf(float amax) {
  if (!(amax < __uint_as_float(0x7f800000U))) {
    return {__uint_as_float(0x7fc00000U), __uint_as_float(0x7fc00000U)};
  }
  const float bounded = fmaxf(amax, 1e-4F);
  return {__fdiv_rn(bounded, 448.0F), __fdiv_rn(448.0F, bounded)};
}

// Two codes, `first` in the low byte. A NaN becomes 0x7f.
__device__ __forceinline__ std::uint16_t ToE4m3(float first, float second) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(codes) : "f"(first), "f"(second));
  return codes;
}

// A warp's 16 rows x 128 columns: `gate` is overwritten.
__device__ __forceinline__ void StoreSwiglu(float (&gate)[64], const float (&up)[64],
                                            std::uint8_t* memory, const PrefillArgs& args,
                                            const TileOut& tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 64; i += 2) HiddenPair(gate[i], gate[i + 1], up[i], up[i + 1]);
  const RowHalves amax = RowMaxima(gate);
  const RowScale scales[2] = {ScaleOf(amax.low), ScaleOf(amax.high)};
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    const float factor = scales[i / 2 % 2].factor;
    const int row = lane / 4 + i / 2 % 2 * 8;
    const int byte = i / 4 * 8 + lane % 4 * 2;
    const int at = row * 128 + ((byte / 16 ^ row % 8) << 4) + byte % 16;
    *reinterpret_cast<std::uint16_t*>(memory + at) = ToE4m3(gate[i] * factor, gate[i + 1] * factor);
  }
  __syncwarp();
  if (lane % 4 == 0) {
    float* to = args.out_scales + tile.column / 128 * args.out_scales_row + tile.row + lane / 4;
    if (lane / 4 < tile.rows) to[0] = scales[0].scale;
    if (lane / 4 + 8 < tile.rows) to[8] = scales[1].scale;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 8 + 4 * i;
    if (row >= tile.rows) continue;
    *reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(args.out) +
                              (tile.row + row) * args.out_stride + tile.column + lane % 8 * 16) =
        *reinterpret_cast<const uint4*>(memory + row * 128 + ((lane % 8 ^ row % 8) << 4));
  }
}

}  // namespace switchyard::cuda
