#include <cuda_bf16.h>

#include "tests/cuda/device_buffer.h"
#include "tests/cuda/exchange_kernels.h"
#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda::testing {
namespace {

__device__ int ExpertOfSlot(const ExchangeRows& rows, int slot) {
  int expert = 0;
  while (rows.offsets[expert + 1] <= slot) ++expert;
  return expert;
}

// A value of a landed row, in FP32.
__device__ float LandedValue(const ExchangeStep& step, int hidden, const std::byte* row, int c) {
  const std::byte* scales = row + DataBytesOf(step.format, hidden);
  switch (step.format) {
    case ExchangeFormat::kFp8:
    case ExchangeFormat::kFp8Pow2:
      return __fmul_rn(E4m3Value(static_cast<std::uint32_t>(row[c])),
                       reinterpret_cast<const float*>(scales)[c / 128]);
    case ExchangeFormat::kInt8:
      return __fmul_rn(static_cast<float>(reinterpret_cast<const std::int8_t*>(row)[c]),
                       *reinterpret_cast<const float*>(scales));
    case ExchangeFormat::kNvfp4: {
      const std::uint32_t code = static_cast<std::uint32_t>(row[c / 2]) >> (c % 2 * 4) & 0xfU;
      const float scale = E4m3Value(static_cast<std::uint32_t>(scales[c / 16]));
      return __fdiv_rn(__fmul_rn(E2m1Value(code), scale), step.global_scale);
    }
    case ExchangeFormat::kBf16:
      break;
  }
  return Bf16Value(reinterpret_cast<const std::uint16_t*>(row)[c]);
}

__global__ void FakeExpertsKernel(const __grid_constant__ ExchangeRank rank,
                                  const __grid_constant__ ExchangeStep step,
                                  std::uint16_t* answers) {
  AllowDependentLaunch();
  WaitForPrecedingKernels();
  const ExchangeRows& rows = step.rows;
  const ExchangeShape& shape = rank.shape;
  const int slots = rows.offsets[shape.experts_of_rank];
  for (int slot = static_cast<int>(blockIdx.x); slot < slots; slot += static_cast<int>(gridDim.x)) {
    const int expert = rank.rank * shape.experts_of_rank + ExpertOfSlot(rows, slot);
    const float factor = 1.0F + static_cast<float>(expert) / 256.0F;
    const std::byte* row = rank.heaps[rank.rank] + rank.layout.rows +
                           static_cast<std::int64_t>(rows.row_index[slot]) * rank.layout.row_stride;
    std::uint16_t* out = answers + static_cast<std::int64_t>(slot) * shape.hidden;
    for (int c = static_cast<int>(threadIdx.x); c < shape.hidden;
         c += static_cast<int>(blockDim.x)) {
      const float value = LandedValue(step, shape.hidden, row, c);
      out[c] = static_cast<std::uint16_t>(RoundDecoded(__fmul_rn(value, factor)));
    }
  }
}

__global__ void TouchKernel(const __grid_constant__ ExchangeRank rank,
                            const __grid_constant__ ExchangeRows rows, int row_bytes,
                            std::uint32_t* sink) {
  AllowDependentLaunch();
  WaitForPrecedingKernels();
  const int slots = rows.offsets[rank.shape.experts_of_rank];
  const auto warps = static_cast<int>(gridDim.x * blockDim.x / 32);
  std::uint32_t found = 0;
  for (int slot = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32); slot < slots;
       slot += warps) {
    const std::byte* row = rank.heaps[rank.rank] + rank.layout.rows +
                           static_cast<std::int64_t>(rows.row_index[slot]) * rank.layout.row_stride;
#pragma unroll 8
    for (int at = static_cast<int>(threadIdx.x % 32) * 16; at < row_bytes; at += 512) {
      const uint4 words = *reinterpret_cast<const uint4*>(row + at);
      found ^= words.x ^ words.y ^ words.z ^ words.w;
    }
  }
  if (found == 0x12345678U) atomicAdd(sink, 1U);
}

__global__ void BarrierKernel(std::uint32_t* const* counters, int ranks, int rank) {
  if (threadIdx.x != 0) return;
  std::uint32_t turn;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(turn) : "l"(counters[rank]) : "memory");
  ++turn;
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(counters[rank]), "r"(turn) : "memory");
  for (int r = 0; r < ranks; ++r) {
    std::uint32_t there = 0;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                   : "=r"(there)
                   : "l"(counters[r])
                   : "memory");
    } while (static_cast<std::int32_t>(there - turn) < 0);
  }
}

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), int ctas, int threads, bool dependent,
            cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  Check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}

}  // namespace

void FakeExperts(const ExchangeRank& rank, const ExchangeStep& step, std::uint16_t* answers,
                 bool dependent, cudaStream_t stream) {
  Launch(FakeExpertsKernel, 32, 256, dependent, stream, rank, step, answers);
}

void TouchRows(const ExchangeRank& rank, const ExchangeStep& step, std::uint32_t* sink,
               bool dependent, cudaStream_t stream) {
  Launch(TouchKernel, 132, 512, dependent, stream, rank, step.rows,
         RowBytesOf(step.format, rank.shape.hidden), sink);
}

void DeviceBarrier(std::uint32_t* const* counters, int ranks, int rank, cudaStream_t stream) {
  Launch(BarrierKernel, 1, 32, false, stream, counters, ranks, rank);
}

}  // namespace switchyard::cuda::testing
