#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/steps/answer_rows.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;

// Answers may lie at odd addresses: a row of BF16 answers has an odd number of bytes before it
// only if its buffer has, so one test serves the whole row.
template <typename T>
__device__ __forceinline__ void StoreAt(std::byte* row, std::int64_t i, T value) {
  std::byte* to = row + i * static_cast<std::int64_t>(sizeof(T));
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  for (std::size_t b = 0; b < sizeof(T); b++) {
    to[b] = static_cast<std::byte>(value >> (8 * b));
  }
}

__device__ __forceinline__ void Store(std::byte* row, std::int64_t i, float value, bool fp32) {
  if (fp32) {
    StoreAt(row, i, __float_as_uint(value));
  } else {
    StoreAt(row, i, static_cast<std::uint16_t>(RoundDecoded(value)));
  }
}

__device__ __forceinline__ float Finished(float sum, const MatrixFacts& of, std::int64_t i) {
  if (of.output_scales != nullptr) sum *= of.output_scales[i];
  if (of.biases != nullptr) sum += of.biases[i];
  return sum;
}

__global__ void __launch_bounds__(kThreads) Answer(const Answers answers, const PairList list) {
  const AnswerRow row = answers.rows[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < answers.hidden; i += kThreads) {
    float value = 0.0F;
    for (int t = row.first; t < row.first + row.count; t++) {
      const AnswerTerm term = answers.terms[t];
      const MatrixFacts& down = list.experts[list.pairs[term.pair].slot].down;
      const float sum = Finished(answers.sums[term.pair * answers.sum_stride + i], down, i);
      value = answers.weighted ? __fmaf_rn(term.weight, sum, value) : sum;
    }
    Store(row.out, i, value, answers.fp32);
    if (i == 0) answers.nan[blockIdx.x] = isnan(value) ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kThreads) Sum(const RowSums sums) {
  const std::int64_t row = blockIdx.x;
  const std::uint32_t begin = sums.begin[row];
  const std::uint32_t end = sums.begin[row + 1];
  std::byte* y = sums.y + row * sums.y_stride * (sums.fp32 ? 4 : 2);
  for (std::int64_t i = threadIdx.x; i < sums.hidden; i += kThreads) {
    float value = 0.0F;
    for (std::uint32_t t = begin; t < end; t++) {
      const float term = Bf16Value(sums.terms[t][i]);
      value = sums.weights == nullptr ? __fadd_rn(value, term)
                                      : __fmaf_rn(sums.weights[t], term, value);
    }
    Store(y, i, value, sums.fp32);
  }
}

}  // namespace

cudaError_t WriteAnswers(const Answers& answers, const PairList& list, cudaStream_t stream) {
  if (answers.count < 1 || answers.hidden < 1) return cudaErrorInvalidValue;
  Answer<<<static_cast<unsigned>(answers.count), kThreads, 0, stream>>>(answers, list);
  return cudaGetLastError();
}

cudaError_t SumRows(const RowSums& sums, cudaStream_t stream) {
  if (sums.rows < 1 || sums.hidden < 1) return cudaErrorInvalidValue;
  Sum<<<static_cast<unsigned>(sums.rows), kThreads, 0, stream>>>(sums);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
