#include <cstdio>
#include <cstdlib>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "tests/cuda/device_kernels.h"
#include "worker/device/cuda/narrow_weights.h"

namespace switchyard::cuda::testing {
namespace {

constexpr unsigned kCtas = 132 * 8;
constexpr unsigned kThreads = 256;

void CheckLaunch() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "launch: %s\n", cudaGetErrorString(error));
  std::abort();
}

__device__ std::uint32_t Hash(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}
// Uniform in [-1, 1).
__device__ float Uniform(std::int64_t i, std::uint32_t seed) {
  const std::uint32_t low = Hash(static_cast<std::uint32_t>(i) * 2654435761U + seed);
  return static_cast<float>(Hash(low + static_cast<std::uint32_t>(i >> 32) * 977U) >> 8) *
             (1.0F / 8388608.0F) -
         1.0F;
}

template <typename Work>
__global__ void ForEach(std::int64_t count, Work work) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    work(i);
  }
}

__device__ float Fp8Value(std::byte code) {
  __nv_fp8_e4m3 value;
  value.__x = static_cast<__nv_fp8_storage_t>(code);
  return static_cast<float>(value);
}

// The group that owns `slot`, or -1.
__device__ int GroupOf(const GemmGroups& groups, std::int64_t slot) {
  for (int g = 0; g < groups.groups; g++) {
    const int begin = groups.offsets == nullptr ? g * groups.slots_per_group : groups.offsets[g];
    int count = groups.counts[g];
    if (groups.offsets == nullptr && count > groups.slots_per_group) count = groups.slots_per_group;
    if (slot >= begin && slot < begin + count) return g;
  }
  return -1;
}

__device__ double WarpSum(double sum) {
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
  return sum;
}

struct RowView {
  const std::byte* data;
  const float* scales;
  int scale_group;
};

__device__ double Dot(const RowView& row, const PlainWeights& w, int group, std::int64_t n) {
  const bool fp8 = w.type == WeightType::kFp8;
  const bool int8 = w.type == WeightType::kInt8;
  double sum = 0;
  for (std::int64_t k = threadIdx.x % 32; k < w.k; k += 32) {
    const std::int64_t at = (group * w.n + n) * w.k + k;
    if (fp8) {
      const std::int64_t block = (group * (w.n / 128) + n / 128) * (w.k / 128) + k / 128;
      sum += static_cast<double>(Fp8Value(row.data[k])) * row.scales[k / row.scale_group] *
             (static_cast<double>(Fp8Value(w.data[at])) * w.scales[block]);
    } else if (int8) {
      sum += static_cast<double>(static_cast<std::int8_t>(row.data[k])) *
             static_cast<std::int8_t>(w.data[at]) * row.scales[0];
    } else {
      sum += static_cast<double>(
                 __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row.data)[k])) *
             __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(w.data)[at]);
    }
  }
  return WarpSum(sum);
}

// A CTA a (slot, part of n), a warp an output.
__global__ void Gemm(GemmRows rows, GemmGroups groups, PlainWeights w, double* out) {
  const std::int64_t slot = blockIdx.x;
  const int group = GroupOf(groups, slot);
  if (group < 0) return;
  const std::int64_t row = rows.row_index == nullptr ? slot : rows.row_index[slot];
  const std::byte* data = rows.rows + row * rows.stride;
  const RowView view = {data, reinterpret_cast<const float*>(data + rows.scale_offset), 128};
  for (std::int64_t n = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32; n < w.n;
       n += gridDim.y * (blockDim.x / 32)) {
    const double sum = Dot(view, w, group, n);
    if (threadIdx.x % 32 == 0) out[slot * w.n + n] = sum;
  }
}

__global__ void Second(HiddenRows hidden, GemmGroups groups, PlainWeights w, double* out) {
  const std::int64_t slot = blockIdx.x;
  const int group = GroupOf(groups, slot);
  if (group < 0) return;
  const std::byte* data = hidden.out + slot * hidden.stride;
  const RowView view = {data, reinterpret_cast<const float*>(data + hidden.scale_offset),
                        hidden.group};
  for (std::int64_t n = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32; n < w.n;
       n += gridDim.y * (blockDim.x / 32)) {
    const double sum = Dot(view, w, group, n);
    if (threadIdx.x % 32 == 0) out[slot * w.n + n] = sum;
  }
}

__global__ void Swiglu(const double* gated, HiddenRows hidden) {
  const double* row = gated + blockIdx.x * 2 * hidden.n;
  std::byte* out = hidden.out + blockIdx.x * hidden.stride;
  for (std::int64_t at = threadIdx.x * hidden.group; at < hidden.n;
       at += blockDim.x * hidden.group) {
    const auto value = [&](std::int64_t i) {
      return static_cast<float>(row[i] / (1.0 + exp(-row[i])) * row[hidden.n + i]);
    };
    float amax = 1e-4F;
    for (int i = 0; i < hidden.group; i++) amax = fmaxf(amax, fabsf(value(at + i)));
    for (int i = 0; i < hidden.group; i++) {
      out[at + i] = static_cast<std::byte>(
          __nv_cvt_float_to_fp8(value(at + i) * (448.0F / amax), __NV_SATFINITE, __NV_E4M3));
    }
    reinterpret_cast<float*>(out + hidden.scale_offset)[at / hidden.group] = amax / 448.0F;
  }
}

__global__ void Compare(GemmOutput out, const double* reference, GemmGroups groups, std::int64_t n,
                        RowError* errors) {
  __shared__ double partial[2][kThreads / 32];
  const std::int64_t slot = blockIdx.x;
  double error = 0;
  double norm = 0;
  if (GroupOf(groups, slot) >= 0) {
    const auto* row = reinterpret_cast<const __nv_bfloat16*>(out.out + slot * out.stride);
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const double wanted = reference[slot * n + i];
      const double difference = wanted - static_cast<double>(__bfloat162float(row[i]));
      error += difference * difference;
      norm += wanted * wanted;
    }
  }
  error = WarpSum(error);
  norm = WarpSum(norm);
  if (threadIdx.x % 32 == 0) {
    partial[0][threadIdx.x / 32] = error;
    partial[1][threadIdx.x / 32] = norm;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  RowError sum = {0, 0};
  for (unsigned i = 0; i < kThreads / 32; i++) {
    sum.error += partial[0][i];
    sum.reference += partial[1][i];
  }
  errors[slot] = sum;
}

__device__ uint4 LoadStreaming(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

__global__ void __launch_bounds__(512)
    Read(const uint4* from, std::int64_t count, std::uint32_t* sink) {
  constexpr int kInFlight = 8;
  std::uint32_t mixed = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) v[k] = LoadStreaming(from + i + k * step);
#pragma unroll
    for (int k = 0; k < kInFlight; k++) mixed ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < count; i += step) mixed ^= LoadStreaming(from + i).x;
  if (mixed == 0x13572468U) *sink = mixed;
}

__global__ void __launch_bounds__(512) Copy(const uint4* from, uint4* to, std::int64_t count) {
  constexpr int kInFlight = 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) v[k] = LoadStreaming(from + i + k * step);
#pragma unroll
    for (int k = 0; k < kInFlight; k++) to[i + k * step] = v[k];
  }
  for (; i < count; i += step) to[i] = LoadStreaming(from + i);
}

}  // namespace

void FillBf16(std::uint16_t* out, std::int64_t count, std::uint32_t seed, float amplitude,
              cudaStream_t stream) {
  ForEach<<<kCtas, kThreads, 0, stream>>>(count, [=] __device__(std::int64_t i) {
    out[i] = __bfloat16_as_ushort(__float2bfloat16(Uniform(i, seed) * amplitude));
  });
  CheckLaunch();
}

void FillFp8(std::byte* out, std::int64_t count, std::uint32_t seed, float amplitude,
             cudaStream_t stream) {
  ForEach<<<kCtas, kThreads, 0, stream>>>(count, [=] __device__(std::int64_t i) {
    out[i] = static_cast<std::byte>(
        __nv_cvt_float_to_fp8(Uniform(i, seed) * amplitude, __NV_SATFINITE, __NV_E4M3));
  });
  CheckLaunch();
}

void FillInt8(std::byte* out, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  ForEach<<<kCtas, kThreads, 0, stream>>>(count, [=] __device__(std::int64_t i) {
    out[i] = static_cast<std::byte>(static_cast<std::int8_t>(Uniform(i, seed) * 127.5F));
  });
  CheckLaunch();
}

void FillScales(float* out, std::int64_t count, std::uint32_t seed, float low, float high,
                cudaStream_t stream) {
  ForEach<<<kCtas, kThreads, 0, stream>>>(count, [=] __device__(std::int64_t i) {
    out[i] = low + (high - low) * 0.5F * (Uniform(i, seed) + 1.0F);
  });
  CheckLaunch();
}

void FillFp8Rows(const RandomRows& rows, std::uint32_t seed, float low, float high,
                 cudaStream_t stream) {
  FillFp8(rows.out, rows.rows * rows.stride, seed, 200.0F, stream);
  const std::int64_t of_row = rows.k / 128;
  ForEach<<<kCtas, kThreads, 0, stream>>>(rows.rows * of_row, [=] __device__(std::int64_t i) {
    std::byte* row = rows.out + i / of_row * rows.stride;
    const std::int64_t block = i % of_row;
    const float scale = low + (high - low) * 0.5F * (Uniform(i, seed + 77) + 1.0F);
    auto* scales = reinterpret_cast<float*>(row + rows.scale_offset);
    if (!rows.sums) {
      scales[block] = scale;
      return;
    }
    float sum = 0;
    for (int k = 0; k < 128; k++) sum += Fp8Value(row[block * 128 + k]);
    scales[2 * block] = scale;
    scales[2 * block + 1] = sum * kInt4Fp8SumUnit * scale;
  });
  CheckLaunch();
}

void FillInt8Rows(const RandomRows& rows, std::uint32_t seed, float low, float high,
                  cudaStream_t stream) {
  FillInt8(rows.out, rows.rows * rows.stride, seed, stream);
  ForEach<<<kCtas, kThreads, 0, stream>>>(rows.rows, [=] __device__(std::int64_t i) {
    *reinterpret_cast<float*>(rows.out + i * rows.stride + rows.scale_offset) =
        low + (high - low) * 0.5F * (Uniform(i, seed + 77) + 1.0F);
  });
  CheckLaunch();
}

void ReferenceGemm(const GemmRows& rows, const GemmGroups& groups, std::int64_t slots,
                   const PlainWeights& weights, double* out, cudaStream_t stream) {
  if (slots == 0) return;
  Gemm<<<dim3(static_cast<unsigned>(slots), 16), kThreads, 0, stream>>>(rows, groups, weights, out);
  CheckLaunch();
}

void ReferenceSwiglu(const double* gated, std::int64_t slots, const HiddenRows& hidden,
                     cudaStream_t stream) {
  if (slots == 0) return;
  Swiglu<<<static_cast<unsigned>(slots), 64, 0, stream>>>(gated, hidden);
  CheckLaunch();
}

void ReferenceSecond(const HiddenRows& hidden, const GemmGroups& groups, std::int64_t slots,
                     const PlainWeights& weights, double* out, cudaStream_t stream) {
  if (slots == 0) return;
  Second<<<dim3(static_cast<unsigned>(slots), 16), kThreads, 0, stream>>>(hidden, groups, weights,
                                                                          out);
  CheckLaunch();
}

void CompareRows(const GemmOutput& out, const double* reference, const GemmGroups& groups,
                 std::int64_t slots, std::int64_t n, RowError* errors, cudaStream_t stream) {
  if (slots == 0) return;
  Compare<<<static_cast<unsigned>(slots), kThreads, 0, stream>>>(out, reference, groups, n, errors);
  CheckLaunch();
}

void ReadOnce(const std::byte* from, std::int64_t bytes, std::uint32_t* sink, cudaStream_t stream) {
  Read<<<132 * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(from), bytes / 16, sink);
  CheckLaunch();
}

void CopyOnce(const std::byte* from, std::byte* to, std::int64_t bytes, cudaStream_t stream) {
  Copy<<<132 * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(from),
                                    reinterpret_cast<uint4*>(to), bytes / 16);
  CheckLaunch();
}

void Flush(std::byte* scratch, std::int64_t bytes, cudaStream_t stream) {
  auto* out = reinterpret_cast<uint4*>(scratch);
  ForEach<<<kCtas, 512, 0, stream>>>(bytes / 16, [=] __device__(std::int64_t i) {
    const auto word = static_cast<std::uint32_t>(i);
    out[i] = make_uint4(word, word + 1, word + 2, word + 3);
  });
  CheckLaunch();
}

}  // namespace switchyard::cuda::testing
