#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/steps/weight_codes.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kGridMax = 4096;

unsigned GridFor(std::int64_t count) {
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kGridMax ? blocks : kGridMax);
}

// By value: minus zero is zero, NaN has no code.
__device__ __forceinline__ bool IsE4m3(float value) { return E4m3Value(E4m3Code(value)) == value; }
__device__ __forceinline__ bool IsInt8(float value) {
  return rintf(value) == value && value >= -128.0F && value <= 127.0F;
}

__global__ void Find(const std::uint16_t* values, std::int64_t count, CodeMisfits* misfits) {
  bool e4m3 = true;
  bool int8 = true;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += step) {
    const float value = Bf16Value(values[i]);
    e4m3 = e4m3 && IsE4m3(value);
    int8 = int8 && IsInt8(value);
  }
  // Threads that race write the same word.
  if (!e4m3) misfits->e4m3 = 1;
  if (!int8) misfits->int8 = 1;
}

__global__ void Store(const CodedMatrix matrix, WeightCode code) {
  const std::int64_t count = matrix.padded_rows * matrix.padded_columns;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += step) {
    const std::int64_t row = i / matrix.padded_columns;
    const std::int64_t column = i % matrix.padded_columns;
    const bool inside = row < matrix.rows && column < matrix.columns;
    const std::uint16_t bits = inside ? matrix.values[row * matrix.columns + column] : 0;
    if (code == WeightCode::kBf16) {
      reinterpret_cast<std::uint16_t*>(matrix.out)[i] = bits;
    } else if (code == WeightCode::kE4m3) {
      matrix.out[i] = static_cast<std::byte>(E4m3Code(Bf16Value(bits)));
    } else {
      matrix.out[i] = static_cast<std::byte>(static_cast<std::int8_t>(Bf16Value(bits)));
    }
  }
}

}  // namespace

cudaError_t FindCodeMisfits(const std::uint16_t* values, std::int64_t count, CodeMisfits* misfits,
                            cudaStream_t stream) {
  if (count < 1) return cudaErrorInvalidValue;
  Find<<<GridFor(count), kThreads, 0, stream>>>(values, count, misfits);
  return cudaGetLastError();
}

cudaError_t StoreCodes(const CodedMatrix& matrix, WeightCode code, cudaStream_t stream) {
  if (matrix.rows < 1 || matrix.columns < 1) return cudaErrorInvalidValue;
  Store<<<GridFor(matrix.padded_rows * matrix.padded_columns), kThreads, 0, stream>>>(matrix, code);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
