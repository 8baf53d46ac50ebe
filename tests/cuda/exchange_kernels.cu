#include "tests/cuda/exchange_kernels.h"

#include <cuda_bf16.h>

#include "tests/cuda/device_buffer.h"
#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda::testing {
namespace {

__device__ int ExpertOfSlot(const ExchangeRows& rows, int slot) {
  int expert = 0;
  while (rows.offsets[expert + 1] <= slot) ++expert;
  return expert;
}

__global__ void FakeExpertsKernel(const __grid_constant__ ExchangeRank rank,
                                  const __grid_constant__ ExchangeRows rows,
                                  std::uint16_t* answers) {
  AllowDependentLaunch();
  WaitForPrecedingKernels();
  const ExchangeShape& shape = rank.shape;
  const int slots = rows.offsets[shape.experts_of_rank];
  for (int slot = static_cast<int>(blockIdx.x); slot < slots;
       slot += static_cast<int>(gridDim.x)) {
    const int expert = rank.rank * shape.experts_of_rank + ExpertOfSlot(rows, slot);
    const float factor = 1.0F + static_cast<float>(expert) / 256.0F;
    const std::byte* row = rank.heaps[rank.rank] + rank.layout.rows +
                           static_cast<std::int64_t>(rows.row_index[slot]) * rank.layout.row_stride;
    std::uint16_t* out = answers + static_cast<std::int64_t>(slot) * shape.hidden;
    for (int c = static_cast<int>(threadIdx.x); c < shape.hidden;
         c += static_cast<int>(blockDim.x)) {
      float value;
      if (shape.format == ExchangeFormat::kFp8) {
        const auto* scales = reinterpret_cast<const float*>(row + shape.hidden);
        value = __fmul_rn(E4m3Value(static_cast<std::uint32_t>(row[c])), scales[c / 128]);
      } else {
        value = Bf16Value(reinterpret_cast<const std::uint16_t*>(row)[c]);
      }
      out[c] = static_cast<std::uint16_t>(RoundDecoded(__fmul_rn(value, factor)));
    }
  }
}

__global__ void TouchKernel(const __grid_constant__ ExchangeRank rank,
                            const __grid_constant__ ExchangeRows rows, std::uint32_t* sink) {
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
    for (int at = static_cast<int>(threadIdx.x % 32) * 16; at < rank.layout.row_bytes; at += 512) {
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

void FakeExperts(const ExchangeRank& rank, const ExchangeRows& rows, std::uint16_t* answers,
                 bool dependent, cudaStream_t stream) {
  Launch(FakeExpertsKernel, 32, 256, dependent, stream, rank, rows, answers);
}

void TouchRows(const ExchangeRank& rank, const ExchangeRows& rows, std::uint32_t* sink,
               bool dependent, cudaStream_t stream) {
  Launch(TouchKernel, 132, 512, dependent, stream, rank, rows, sink);
}

void DeviceBarrier(std::uint32_t* const* counters, int ranks, int rank, cudaStream_t stream) {
  Launch(BarrierKernel, 1, 32, false, stream, counters, ranks, rank);
}

}  // namespace switchyard::cuda::testing
