#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/steps/answer_rows.h"

namespace switchyard::cuda {
namespace {

constexpr int kSumThreads = 256;  // eight columns each
constexpr int kSumColumns = kSumThreads * 8;
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
  if (out == nullptr) return;
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
  if (i == 0 && answers.nan != nullptr) answers.nan[blockIdx.x] = isnan(values[0]) ? 1 : 0;
}

// Eight BF16 values of a term from column i on; those beyond the row are zeros.
__device__ __forceinline__ uint4 LoadEight(const std::uint16_t* term, std::int64_t i,
                                           std::int64_t count) {
  const std::uint16_t* from = term + i;
  if (i + 8 <= count && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    return *reinterpret_cast<const uint4*>(from);
  }
  std::uint32_t pairs[4] = {};
#pragma unroll
  for (int j = 0; j < 8; j++) {
    if (i + j < count) pairs[j / 2] |= static_cast<std::uint32_t>(from[j]) << (j % 2 * 16);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

template <bool kWeighted>
__device__ __forceinline__ void AddEight(const uint4& eight, float weight, float (&values)[8]) {
  const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const float term = Bf16Value(j % 2 == 0 ? pairs[j / 2] & 0xffffU : pairs[j / 2] >> 16);
    values[j] = kWeighted ? __fmaf_rn(weight, term, values[j]) : __fadd_rn(values[j], term);
  }
}

// Columns of one row: blockIdx.y counts their pieces. Terms and their list may lie in memory of the
// host, where a load takes more than a microsecond: the list is read once for the CTA, and a
// thread's loads of four terms are on their way together.
template <bool kWeighted>
__global__ void __launch_bounds__(kSumThreads) Sum(const RowSums sums) {
  constexpr int kTogether = 4;
  __shared__ std::uint32_t range[2];
  __shared__ const std::uint16_t* terms[kTermsAtOnce];
  __shared__ float weights[kTermsAtOnce];
  const std::int64_t row = blockIdx.x;
  if (threadIdx.x < 2) range[threadIdx.x] = sums.begin[row + threadIdx.x];
  __syncthreads();
  const std::int64_t i = blockIdx.y * std::int64_t{kSumColumns} + threadIdx.x * 8;
  float values[8] = {};
  for (std::uint32_t at = range[0]; at < range[1]; at += kTermsAtOnce) {
    const int count = static_cast<int>(min(std::uint32_t{kTermsAtOnce}, range[1] - at));
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) {
      terms[threadIdx.x] = sums.terms[at + threadIdx.x];
      if constexpr (kWeighted) weights[threadIdx.x] = sums.weights[at + threadIdx.x];
    }
    __syncthreads();
    if (i >= sums.hidden) continue;
    for (int t = 0; t < count; t += kTogether) {
      uint4 eights[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        if (t + j < count) eights[j] = LoadEight(terms[t + j], i, sums.hidden);
      }
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        if (t + j < count) AddEight<kWeighted>(eights[j], weights[t + j], values);
      }
    }
  }
  if (i >= sums.hidden) return;
  std::byte* const y = sums.y + row * sums.y_stride * (sums.fp32 ? 4 : 2);
  const float first[4] = {values[0], values[1], values[2], values[3]};
  const float second[4] = {values[4], values[5], values[6], values[7]};
  StoreFour(y, i, sums.hidden, first, sums.fp32);
  if (i + 4 < sums.hidden) StoreFour(y, i + 4, sums.hidden, second, sums.fp32);
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
  const dim3 grid(static_cast<unsigned>(sums.rows),
                  static_cast<unsigned>((sums.hidden + kSumColumns - 1) / kSumColumns));
  if (sums.weights == nullptr) {
    Sum<false><<<grid, kSumThreads, 0, stream>>>(sums);
  } else {
    Sum<true><<<grid, kSumThreads, 0, stream>>>(sums);
  }
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
