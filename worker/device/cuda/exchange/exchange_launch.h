// Checks and launches of the exchange's kernels; inside worker/device/cuda/exchange.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard::cuda {

inline bool IsAligned16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

inline bool IsExchangeStep(const ExchangeRank& rank, const ExchangeStep& step) {
  const ExchangeRows& rows = step.rows;
  if (!IsExchangeShape(rank.shape) || rank.rank < 0 || rank.rank >= rank.shape.ranks ||
      rank.state == nullptr || rank.timeout_ns > kExchangeTimeoutMax) {
    return false;
  }
  for (int r = 0; r < rank.shape.ranks; ++r) {
    if (rank.heaps[r] == nullptr || !IsAligned16(rank.heaps[r])) return false;
  }
  const bool has_tensors =
      step.x != nullptr && IsAligned16(step.x) && step.ids != nullptr && step.weights != nullptr;
  return rank.shape.formats.Has(step.format) &&
         (step.answers == AnswerFormat::kBf16 || IsNormal(rank.shape)) && step.cover >= 1 &&
         step.cover <= rank.shape.tokens_max && step.tokens >= 0 && step.tokens <= step.cover &&
         (step.tokens == 0 || has_tensors) && rows.counts != nullptr && rows.offsets != nullptr &&
         rows.row_index != nullptr && rows.slots != nullptr && rows.weights != nullptr;
}

// Calls `with` with a constant type of the format, for kernels that have it as a parameter.
template <typename With>
auto WithFormat(ExchangeFormat format, const With& with) {
  using enum ExchangeFormat;
  switch (format) {
    case kBf16:
      return with(std::integral_constant<ExchangeFormat, kBf16>());
    case kFp8Pow2:
      return with(std::integral_constant<ExchangeFormat, kFp8Pow2>());
    case kInt8:
      return with(std::integral_constant<ExchangeFormat, kInt8>());
    case kNvfp4:
      return with(std::integral_constant<ExchangeFormat, kNvfp4>());
    case kFp8:
      break;
  }
  return with(std::integral_constant<ExchangeFormat, kFp8>());
}

// Stands for all that ranks have to mean by a step, besides its cover.
inline std::uint32_t StepHash(const ExchangeShape& shape, const ExchangeStep& step) {
  std::uint32_t hash = 2166136261U;
  for (const int part :
       {kExchangeVersion, shape.ranks, shape.tokens_max, shape.hidden, shape.top_k,
        shape.experts_of_rank, ExpertsOf(shape), static_cast<int>(shape.formats.bits),
        static_cast<int>(shape.unit), step.layer, static_cast<int>(step.format),
        static_cast<int>(step.answers), std::bit_cast<int>(step.global_scale)}) {
    hash = (hash ^ static_cast<std::uint32_t>(part)) * 16777619U;
  }
  return hash;
}

template <typename Arguments>
cudaError_t LaunchExchange(void (*kernel)(Arguments), const Arguments& arguments, int ctas,
                           int threads, int shared, bool dependent, cudaStream_t stream) {
  const cudaError_t sized = cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (sized != cudaSuccess) return sized;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments);
}

}  // namespace switchyard::cuda
