#include "worker/device/cuda/steps/pair_rows.h"
#include "worker/device/cuda/steps/row_rounding.cuh"

namespace switchyard::cuda {
namespace {

__device__ __forceinline__ std::uint32_t ByteAt(const std::byte* from) {
  return static_cast<std::uint32_t>(*from);
}
__device__ __forceinline__ bool IsMultipleOf4(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 4 == 0;
}
// A word at any address.
__device__ __forceinline__ std::uint32_t WordAt(const std::byte* from) {
  if (IsMultipleOf4(from)) return *reinterpret_cast<const std::uint32_t*>(from);
  return ByteAt(from) | ByteAt(from + 1) << 8 | ByteAt(from + 2) << 16 | ByteAt(from + 3) << 24;
}
// Up to four bytes of a row, zeros for those beyond it.
__device__ __forceinline__ std::uint32_t BytesAt(const std::byte* from, std::int64_t left) {
  if (left >= 4) return WordAt(from);
  std::uint32_t word = 0;
  for (int i = 0; i < left; i++) word |= ByteAt(from + i) << (8 * i);
  return word;
}

// A row in its wire format, decoded value by value.
class WireRow {
 public:
  __device__ __forceinline__ WireRow(const PairSource& from, std::int64_t hidden)
      : from_(from), hidden_(hidden) {}

  [[nodiscard]] __device__ __forceinline__ float ScaleOf(std::int64_t i) const {
    switch (from_.format) {
      case RowFormat::kFp8:
        return __uint_as_float(WordAt(from_.scales + i / 128 * 4));
      case RowFormat::kFp8Ue8m0:
        return Ue8m0Value(ByteAt(from_.scales + i / 128));
      case RowFormat::kInt8:
        return __uint_as_float(WordAt(from_.scales));
      case RowFormat::kNvfp4:
        return E4m3Value(ByteAt(from_.scales + i / 16));
      case RowFormat::kBf16:
        break;
    }
    return 1.0F;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t Codes(std::int64_t i) const {
    return BytesAt(from_.data + i, hidden_ - i);
  }

  __device__ __forceinline__ void Four(std::int64_t i, std::uint32_t (&bits)[4]) const {
    bits[0] = bits[1] = bits[2] = bits[3] = 0;
    const std::int64_t left = hidden_ - i;
    if (left <= 0) return;
    if (from_.format == RowFormat::kBf16) {
      const std::uint32_t low = BytesAt(from_.data + 2 * i, 2 * left);
      const std::uint32_t high = left > 2 ? BytesAt(from_.data + 2 * i + 4, 2 * left - 4) : 0;
      bits[0] = low & 0xffffU, bits[1] = low >> 16, bits[2] = high & 0xffffU, bits[3] = high >> 16;
      return;
    }
    const float scale = ScaleOf(i);
    if (from_.format == RowFormat::kNvfp4) {
      const std::uint32_t codes = BytesAt(from_.data + i / 2, (left + 1) / 2);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float value = __fmul_rn(E2m1Value((codes >> (4 * j)) & 0xfU), scale);
        if (j < left) bits[j] = RoundDecoded(__fdiv_rn(value, from_.global_scale));
      }
      return;
    }
    const std::uint32_t codes = Codes(i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const std::uint32_t code = (codes >> (8 * j)) & 0xffU;
      const float value = from_.format == RowFormat::kInt8
                              ? static_cast<float>(static_cast<std::int8_t>(code))
                              : E4m3Value(code);
      if (j < left) bits[j] = RoundDecoded(__fmul_rn(value, scale));
    }
  }

 private:
  const PairSource& from_;
  const std::int64_t hidden_;
};

__global__ void __launch_bounds__(kRowThreads)
    LoadRows(const PairList list, const std::int64_t hidden, const PairRows out) {
  const int pair = static_cast<int>(blockIdx.x);
  const PairSource from = list.pairs[pair];
  const ExpertFacts expert = list.experts[from.slot];  // a copy: stores of the row cannot change it
  const WireRow wire(from, hidden);
  if (list.amax != nullptr) RecordLargest(wire, hidden, list.amax + 2 * from.slot);
  const bool as_codes = expert.route == Route::kFp8;
  const RowWriter writer(out, pair, as_codes, hidden);
  const bool fp8 = from.format == RowFormat::kFp8 || from.format == RowFormat::kFp8Ue8m0;
  if (from.rounded && as_codes && fp8) {
    for (std::int64_t i = threadIdx.x * 4; i < writer.end(); i += kRowThreads * 4) {
      *reinterpret_cast<std::uint32_t*>(writer.row() + i) = wire.Codes(i);
    }
    for (int g = threadIdx.x; g < writer.groups(); g += kRowThreads) {
      writer.scales()[g] = wire.ScaleOf(g * std::int64_t{128});
    }
    return;
  }
  writer.Write(wire, from.rounded && !as_codes ? RoundingRule{} : expert.inputs);
}

// silu(gate) * up of one pair. Padded sums are zeros, and so is what they become.
class SwigluRow {
 public:
  __device__ __forceinline__ SwigluRow(const float* sums, const MatrixFacts& of,
                                       std::int64_t padded)
      : sums_(sums), of_(of), padded_(padded) {}

  __device__ __forceinline__ void Four(std::int64_t i, std::uint32_t (&bits)[4]) const {
    if (i >= padded_) {
      bits[0] = bits[1] = bits[2] = bits[3] = 0;
      return;
    }
    const float4 gate = Finished(i);
    const float4 up = Finished(padded_ + i);
    bits[0] = Of(gate.x, up.x), bits[1] = Of(gate.y, up.y);
    bits[2] = Of(gate.z, up.z), bits[3] = Of(gate.w, up.w);
  }

 private:
  static __device__ __forceinline__ std::uint32_t Of(float gate, float up) {
    return RoundDecoded(__fmul_rn(__fdiv_rn(gate, 1.0F + expf(-gate)), up));
  }
  __device__ __forceinline__ float4 Finished(std::int64_t i) const {
    float4 sum = *reinterpret_cast<const float4*>(sums_ + i);
    if (of_.output_scales != nullptr) {
      const float4 scale = *reinterpret_cast<const float4*>(of_.output_scales + i);
      sum = make_float4(sum.x * scale.x, sum.y * scale.y, sum.z * scale.z, sum.w * scale.w);
    }
    if (of_.biases != nullptr) {
      const float4 bias = *reinterpret_cast<const float4*>(of_.biases + i);
      sum = make_float4(sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w);
    }
    return sum;
  }

  const float* sums_;
  const MatrixFacts& of_;
  const std::int64_t padded_;
};

__global__ void __launch_bounds__(kRowThreads)
    Swiglu(const PairList list, const float* sums, const std::int64_t sum_stride,
           const std::int64_t intermediate, const std::int64_t padded, const PairRows out) {
  const int pair = static_cast<int>(blockIdx.x);
  const int slot = list.pairs[pair].slot;
  const ExpertFacts expert = list.experts[slot];
  const SwigluRow h(sums + pair * sum_stride, expert.gate_up, padded);
  if (list.amax != nullptr) RecordLargest(h, intermediate, list.amax + 2 * slot + 1);
  const RowWriter writer(out, pair, expert.route == Route::kFp8, intermediate);
  writer.Write(h, expert.middle);
}

}  // namespace

cudaError_t LoadPairRows(const PairList& list, std::int64_t hidden, const PairRows& out,
                         cudaStream_t stream) {
  if (list.count < 1 || hidden < 1) return cudaErrorInvalidValue;
  LoadRows<<<static_cast<unsigned>(list.count), kRowThreads, 0, stream>>>(list, hidden, out);
  return cudaGetLastError();
}

cudaError_t SwigluPairRows(const PairList& list, const float* sums, std::int64_t sum_stride,
                           std::int64_t intermediate, const PairRows& out, cudaStream_t stream) {
  if (list.count < 1 || intermediate < 1) return cudaErrorInvalidValue;
  Swiglu<<<static_cast<unsigned>(list.count), kRowThreads, 0, stream>>>(
      list, sums, sum_stride, intermediate, Padded(intermediate), out);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
