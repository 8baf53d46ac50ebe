#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/steps/answer_rows.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;        // of a row's sum
constexpr int kAnswerThreads = 128;  // four columns each
constexpr int kAnswerColumns = kAnswerThreads * 4;
constexpr int kTermsAtOnce = 32;

// A value at any address.
template <typename T>
__device__ __forceinline__ void StoreAt(std::byte* to, T value) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  for (std::size_t b = 0; b < sizeof(T); b++) to[b] = static_cast<std::byte>(value >> (8 * b));
}

__device__ __forceinline__ void Store(std::byte* row, std::int64_t i, float value, bool fp32) {
  if (fp32) {
    StoreAt(row + 4 * i, __float_as_uint(value));
  } else {
    StoreAt(row + 2 * i, static_cast<std::uint16_t>(RoundDecoded(value)));
  }
}

__device__ __forceinline__ void StoreFour(std::byte* row, std::int64_t i, std::int64_t count,
                                          const float (&values)[4], bool fp32) {
  std::byte* const to = row + i * (fp32 ? 4 : 2);
  const auto at = reinterpret_cast<std::uintptr_t>(to);
  if (i + 4 <= count && fp32 && at % 16 == 0) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else if (i + 4 <= count && !fp32 && at % 8 == 0) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(RoundDecoded(values[0]) | RoundDecoded(values[1]) << 16,
                   RoundDecoded(values[2]) | RoundDecoded(values[3]) << 16);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (i + j < count) Store(row, i + j, values[j], fp32);
    }
  }
}

struct Term {
  const float* sums;
  const float* output_scales;
  const float* biases;
  float weight;
};

// Columns of one row: blockIdx.y counts their pieces.
__global__ void __launch_bounds__(kAnswerThreads)
    Answer(const Answers answers, const PairList list) {
  __shared__ Term terms[kTermsAtOnce];
  std::byte* const out = list.rows[blockIdx.x].out;
  const PairTerm* const of_row = list.terms + blockIdx.x * std::int64_t{list.width};
  const std::int64_t i = blockIdx.y * std::int64_t{kAnswerColumns} + threadIdx.x * 4;
  float values[4] = {};
  for (int done = 0; done < list.width; done += kTermsAtOnce) {
    const int count = min(kTermsAtOnce, list.width - done);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) {
      const PairTerm term = of_row[done + threadIdx.x];
      terms[threadIdx.x].sums = nullptr;
      if (term.place >= 0) {
        const MatrixFacts& down = list.experts[term.slot].down;
        terms[threadIdx.x] = {answers.sums + term.place * answers.sum_stride, down.output_scales,
                              down.biases, term.weight};
      }
    }
    __syncthreads();
    if (i >= answers.hidden) continue;
    for (int t = 0; t < count; t++) {
      const Term term = terms[t];
      if (term.sums == nullptr) continue;
      // Rows of sums are padded, so four values are there behind the last column, too.
      const float4 four = *reinterpret_cast<const float4*>(term.sums + i);
      const float sums[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float sum = sums[j];
        if (term.output_scales != nullptr) sum = __fmul_rn(sum, term.output_scales[i + j]);
        if (term.biases != nullptr) sum = __fadd_rn(sum, term.biases[i + j]);
        values[j] = answers.weighted ? __fmaf_rn(term.weight, sum, values[j]) : sum;
      }
    }
  }
  if (i >= answers.hidden) return;
  StoreFour(out, i, answers.hidden, values, answers.fp32);
  if (i == 0) answers.nan[blockIdx.x] = isnan(values[0]) ? 1 : 0;
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
  if (list.count < 1 || list.width < 1 || answers.hidden < 1) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(list.count),
                  static_cast<unsigned>((answers.hidden + kAnswerColumns - 1) / kAnswerColumns));
  Answer<<<grid, kAnswerThreads, 0, stream>>>(answers, list);
  return cudaGetLastError();
}

cudaError_t SumRows(const RowSums& sums, cudaStream_t stream) {
  if (sums.rows < 1 || sums.hidden < 1) return cudaErrorInvalidValue;
  Sum<<<static_cast<unsigned>(sums.rows), kThreads, 0, stream>>>(sums);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
