// Inputs of prefill_gemm_bench and the reference that its outputs are held against.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

namespace switchyard::bench {

__host__ __device__ inline std::uint32_t Hash(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<std::uint32_t>(x >> 32);
}

__device__ inline float Uniform(std::uint64_t x) {
  return (static_cast<float>(Hash(x) >> 8) + 0.5F) / 16777216.0F;
}

__device__ inline float Normal(std::uint64_t i, std::uint64_t seed) {
  const float u = Uniform(2 * i + (seed << 40));
  const float v = Uniform(2 * i + 1 + (seed << 40));
  return sqrtf(-2 * logf(u)) * cosf(6.2831853F * v);
}

// Normal values of which about the largest of each 128 reaches E4M3's range, as after quantizing.
__global__ void FillFp8(__nv_fp8_e4m3* to, std::int64_t count, float deviation,
                        std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    to[i] = __nv_fp8_e4m3(Normal(i, seed) * deviation);
  }
}

__global__ void FillBf16(__nv_bfloat16* to, std::int64_t count, float deviation,
                         std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    to[i] = __float2bfloat16(Normal(i, seed) * deviation);
  }
}

__global__ void FillScales(float* to, std::int64_t count, float least, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    to[i] = least * (1 + Uniform(i + (seed << 40)));
  }
}

// Fills rows [first, end) of `row_bytes` each, and their scales in [blocks, rows], with NaN.
__global__ void PoisonRows(std::uint8_t* rows, std::int64_t row_bytes, float* scales, int blocks,
                           std::int64_t rows_all, std::int64_t first) {
  const std::int64_t row = first + blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < row_bytes; i += blockDim.x) {
    rows[row * row_bytes + i] = 0xff;
  }
  for (int i = threadIdx.x; scales != nullptr && i < blocks; i += blockDim.x) {
    scales[i * rows_all + row] = __int_as_float(0x7fffffff);
  }
}

struct ReferenceArgs {
  const void* a;
  const void* b;
  const float* a_scales;  // null: BF16
  const float* b_scales;
  const __nv_bfloat16* out;
  const std::int32_t* index;  // null: row r is row r of a
  std::int64_t rows;
  int n;
  int k;
};

// One element by a warp, in double: value and the root of the sum of squared products.
__device__ inline double2 Element(const ReferenceArgs& args, std::int64_t row, int expert,
                                  int column) {
  double sum = 0;
  double squares = 0;
  const std::int64_t source = args.index == nullptr ? row : args.index[row];
  const std::int64_t from_a = source * args.k;
  const std::int64_t from_b = (std::int64_t{expert} * args.n + column) * args.k;
  for (int k = threadIdx.x % 32; k < args.k; k += 32) {
    double product = 0;
    if (args.a_scales != nullptr) {
      const int blocks = args.k / 128;
      const std::int64_t b_block =
          (std::int64_t{expert} * (args.n / 128) + column / 128) * blocks + k / 128;
      product = static_cast<double>(static_cast<const __nv_fp8_e4m3*>(args.a)[from_a + k]) *
                static_cast<double>(static_cast<const __nv_fp8_e4m3*>(args.b)[from_b + k]) *
                static_cast<double>(args.a_scales[k / 128 * args.rows + source]) *
                static_cast<double>(args.b_scales[b_block]);
    } else {
      product = static_cast<double>(
                    __bfloat162float(static_cast<const __nv_bfloat16*>(args.a)[from_a + k])) *
                static_cast<double>(
                    __bfloat162float(static_cast<const __nv_bfloat16*>(args.b)[from_b + k]));
    }
    sum += product;
    squares += product * product;
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0U, sum, step);
    squares += __shfl_xor_sync(~0U, squares, step);
  }
  return {sum, sqrt(squares)};
}

struct CheckResult {
  unsigned long long checked;
  unsigned long long wrong;  // NaN or outside the bound
  double error2;
  double value2;
};

// Block x holds one of the rows `rows[x]` of expert `experts[x]` against the reference. An element
// may be off by the rounding to BF16 (2^-9 of it, doubled) and 1 % of the products' root sum of
// squares, which is what a sum of random signs is about.
__global__ void CheckRows(const ReferenceArgs args, const std::int64_t* rows, const int* experts,
                          CheckResult* result) {
  const std::int64_t row = rows[blockIdx.x];
  const int warps = blockDim.x / 32;
  for (int column = threadIdx.x / 32; column < args.n; column += warps) {
    const double2 expected = Element(args, row, experts[blockIdx.x], column);
    if (threadIdx.x % 32 != 0) continue;
    const double off = __bfloat162float(args.out[row * args.n + column]) - expected.x;
    const bool fits = fabs(off) <= fabs(expected.x) / 256 + expected.y * 0.01;
    atomicAdd(&result->checked, 1ULL);
    atomicAdd(&result->error2, off * off);
    atomicAdd(&result->value2, expected.x * expected.x);
    if (!fits) atomicAdd(&result->wrong, 1ULL);
  }
}

struct SwigluOut {
  const __nv_fp8_e4m3* values;  // [rows, n]
  const float* scales;          // [n / 128, rows]
};

// Block x holds one row of silu(gate) * up against the reference. The weights are [experts, 2 n,
// k], `args.n` is 2 n. An element may be off by half a step of E4M3 (2^-4 of it, or 2^-10 of the
// scale) and 2 % of the group's largest; a scale by 1 %.
__global__ void CheckSwigluRows(const ReferenceArgs args, const SwigluOut out,
                                const std::int64_t* rows, const int* experts, CheckResult* result) {
  constexpr int kColumnsMax = 4096;
  __shared__ float expected[kColumnsMax];
  const int n = args.n / 2;
  const std::int64_t row = rows[blockIdx.x];
  for (int column = threadIdx.x / 32; column < n; column += blockDim.x / 32) {
    const double gate = Element(args, row, experts[blockIdx.x], column).x;
    const double up = Element(args, row, experts[blockIdx.x], n + column).x;
    if (threadIdx.x % 32 == 0) expected[column] = static_cast<float>(gate / (1 + exp(-gate)) * up);
  }
  __syncthreads();
  for (int column = threadIdx.x; column < n; column += blockDim.x) {
    float amax = 0;
    for (int i = 0; i < 128; ++i) amax = fmaxf(amax, fabsf(expected[column / 128 * 128 + i]));
    const float scale = out.scales[column / 128 * args.rows + row];
    const float value = static_cast<float>(out.values[row * n + column]) * scale;
    const float off = value - expected[column];
    const bool fits = fabsf(off) <= fabsf(expected[column]) / 16 + scale / 512 + amax * 0.02F &&
                      fabsf(scale * 448 - amax) <= amax * 0.02F;
    atomicAdd(&result->checked, 1ULL);
    atomicAdd(&result->error2, off * off);
    atomicAdd(&result->value2, expected[column] * expected[column]);
    if (!fits) atomicAdd(&result->wrong, 1ULL);
  }
}

__global__ void CountDifferences(const std::uint16_t* one, const std::uint16_t* other,
                                 std::int64_t count, unsigned long long* differences) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    if (one[i] != other[i]) atomicAdd(differences, 1ULL);
  }
}

// Counts 16-bit words of rows [first, end) that no longer hold the poison.
__global__ void CheckPoison(const std::uint16_t* out, std::int64_t first, std::int64_t end,
                            unsigned long long* changed) {
  for (std::int64_t i = first + blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < end;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    if (out[i] != 0xffff) atomicAdd(changed, 1ULL);
  }
}

}  // namespace switchyard::bench
