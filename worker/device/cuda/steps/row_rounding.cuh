// Writes one row, rounded as an expert asks, by one CTA: twin of
// worker/device/cpu/codec/activation_rounding.cc, byte for byte where the result is BF16.
//
// A source has `void Four(i, bits)`: BF16 bits of the values i..i+3, i a multiple of 4, zeros
// beyond the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/narrow_weights.h"
#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard::cuda {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;
constexpr std::uint32_t kEveryLane = 0xffffffffU;

// The largest of a CTA's values, in every thread. Ends with all threads past their reads.
__device__ __forceinline__ std::uint32_t LargestOfCta(std::uint32_t mine) {
  __shared__ std::uint32_t of_warp[kRowWarps];
  mine = __reduce_max_sync(kEveryLane, mine);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  const std::uint32_t others = threadIdx.x % 32 < kRowWarps ? of_warp[threadIdx.x % 32] : 0;
  const std::uint32_t largest = __reduce_max_sync(kEveryLane, others);
  __syncthreads();
  return largest;
}

__device__ __forceinline__ std::uint32_t LargestOfFour(const std::uint32_t (&bits)[4]) {
  return max(max(bits[0] & 0x7fffU, bits[1] & 0x7fffU), max(bits[2] & 0x7fffU, bits[3] & 0x7fffU));
}

__device__ __forceinline__ void StoreFour(std::byte* row, std::int64_t i,
                                          const std::uint32_t (&bits)[4]) {
  *reinterpret_cast<uint2*>(row + 2 * i) =
      make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

struct Fp8Scale {
  float factor;  // value to code
  float scale;   // code to value
};

// `largest` is finite: BF16 bits.
__device__ __forceinline__ Fp8Scale ScaleOfFp8(std::uint32_t largest, bool power_of_two) {
  const float amax = fmaxf(kFp8AmaxMin, Bf16Value(largest));
  const float scale = __fdiv_rn(amax, kE4m3Largest);
  if (!power_of_two) return {__fdiv_rn(kE4m3Largest, amax), scale};
  const std::uint32_t exponent = Ue8m0RoundUp(scale);
  return {__uint_as_float((254U - exponent) << 23), Ue8m0Value(exponent)};
}

// A row is written as values, or as codes and their scales, kE4m3Sums with the sums of 128 codes.
enum class RowCodes : std::uint8_t { kBf16, kE4m3, kE4m3Sums, kInt8 };
__device__ __forceinline__ RowCodes CodesOf(Route route) {
  if (route == Route::kFp8) return RowCodes::kE4m3;
  if (route == Route::kInt4Fp8) return RowCodes::kE4m3Sums;
  return route == Route::kInt8 ? RowCodes::kInt8 : RowCodes::kBf16;
}

__device__ __forceinline__ bool IsE4m3(RowCodes codes) {
  return codes == RowCodes::kE4m3 || codes == RowCodes::kE4m3Sums;
}

// Writes a row of `count` values and the padding behind it.
class RowWriter {
 public:
  __device__ __forceinline__ RowWriter(const PairRows& to, int place, RowCodes codes,
                                       std::int64_t count)
      : row_(to.rows + place * to.stride),
        scales_(to.block_scales == nullptr || codes != RowCodes::kE4m3
                    ? reinterpret_cast<float*>(row_ + to.scale_offset)
                    : to.block_scales + place),
        scale_step_(to.block_scales == nullptr ? 1 : to.block_stride),
        count_(count),
        groups_(static_cast<int>((count + 127) / 128)),
        end_(groups_ * std::int64_t{128}),
        codes_(codes) {}

  [[nodiscard]] __device__ __forceinline__ std::byte* row() const { return row_; }
  __device__ __forceinline__ void StoreScale(int group, float scale) const {
    scales_[group * scale_step_] = scale;
  }
  [[nodiscard]] __device__ __forceinline__ int groups() const { return groups_; }
  [[nodiscard]] __device__ __forceinline__ std::int64_t end() const { return end_; }

  template <typename Source>
  __device__ __forceinline__ void Write(const Source& source, const RoundingRule& rule) const {
    if (codes_ == RowCodes::kInt8) {
      WriteIntegers(source, 127.0F, -128.0F);  // rows that came rounded to other formats, too
      return;
    }
    switch (rule.format) {
      case Rounding::kBf16:
        Copy(source);
        break;
      case Rounding::kFp8Group:
        WriteFp8Groups(source, false);
        break;
      case Rounding::kFp8GroupPow2:
        WriteFp8Groups(source, true);
        break;
      case Rounding::kNvfp4:
        WriteNvfp4(source, rule.scale);
        break;
      case Rounding::kFp8Static:
        WriteFp8Static(source, rule.scale);
        break;
      case Rounding::kFp8Row:
        WriteFp8Row(source);
        break;
      case Rounding::kInt8Row:
        WriteIntegers(source, 127.0F, -128.0F);
        break;
      case Rounding::kInt4Row:
        WriteIntegers(source, 7.0F, -8.0F);
        break;
    }
  }

  template <typename Source>
  __device__ __forceinline__ std::uint32_t Largest(const Source& source) const {
    std::uint32_t largest = 0;
    for (std::int64_t i = threadIdx.x * 4; i < count_; i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      largest = max(largest, LargestOfFour(bits));
    }
    return LargestOfCta(largest);
  }

  // Codes of the four values from `i` on, and what they mean. A warp's calls are for the 128 values
  // of a scale.
  __device__ __forceinline__ void StoreCodes(std::int64_t i, const std::uint32_t (&codes)[4],
                                             float scale) const {
    if (IsE4m3(codes_)) {
      *reinterpret_cast<std::uint32_t*>(row_ + i) =
          codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
      if (codes_ == RowCodes::kE4m3Sums) StoreSum(i / 128, codes, scale);
      return;
    }
    std::uint32_t values[4];
#pragma unroll
    for (int j = 0; j < 4; j++) values[j] = RoundDecoded(__fmul_rn(E4m3Value(codes[j]), scale));
    StoreFour(row_, i, values);
  }

 private:
  __device__ __forceinline__ void StoreSum(std::int64_t group, const std::uint32_t (&codes)[4],
                                           float scale) const {
    float sum =
        (E4m3Value(codes[0]) + E4m3Value(codes[1])) + (E4m3Value(codes[2]) + E4m3Value(codes[3]));
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(kEveryLane, sum, lanes);
    if (threadIdx.x % 32 != 0) return;
    reinterpret_cast<float2*>(scales_)[group] =
        make_float2(scale, __fmul_rn(__fmul_rn(sum, kInt4Fp8SumUnit), scale));
  }

  template <typename Source>
  __device__ __forceinline__ void Copy(const Source& source) const {
    for (std::int64_t i = threadIdx.x * 4; i < end_; i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      StoreFour(row_, i, bits);
    }
  }

  __device__ __forceinline__ void StoreFp8(std::int64_t i, const std::uint32_t (&bits)[4],
                                           const Fp8Scale& by, bool finite) const {
    std::uint32_t codes[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      codes[j] = finite ? E4m3Code(__fmul_rn(Bf16Value(bits[j]), by.factor)) : kE4m3NanCode;
    }
    StoreCodes(i, codes, by.scale);
  }
  __device__ __forceinline__ void StoreScales(float scale) const {
    if (codes_ != RowCodes::kE4m3) return;
    for (int g = threadIdx.x; g < groups_; g += kRowThreads) StoreScale(g, scale);
  }

  template <typename Source>
  __device__ __forceinline__ void WriteFp8Groups(const Source& source, bool power_of_two) const {
    const int lane = threadIdx.x % 32;
    for (int g = threadIdx.x / 32; g < groups_; g += kRowWarps) {
      const std::int64_t i = g * std::int64_t{128} + lane * 4;
      std::uint32_t bits[4];
      source.Four(i, bits);
      const std::uint32_t largest = __reduce_max_sync(kEveryLane, LargestOfFour(bits));
      const bool finite = largest < kBf16Infinity;
      Fp8Scale by = ScaleOfFp8(finite ? largest : 0, power_of_two);
      if (!finite) by.scale = __uint_as_float(kFloatNanBits);
      StoreFp8(i, bits, by, finite);
      if (codes_ == RowCodes::kE4m3 && lane == 0) StoreScale(g, by.scale);
    }
  }

  template <typename Source>
  __device__ __forceinline__ void WriteFp8Row(const Source& source) const {
    const std::uint32_t largest = Largest(source);
    const bool finite = largest < kBf16Infinity;
    Fp8Scale by = ScaleOfFp8(finite ? largest : 0, false);
    if (!finite) by.scale = __uint_as_float(kFloatNanBits);
    StoreScales(by.scale);
    for (std::int64_t i = threadIdx.x * 4; i < end_; i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      StoreFp8(i, bits, by, finite);
    }
  }

  template <typename Source>
  __device__ __forceinline__ void WriteFp8Static(const Source& source, float scale) const {
    StoreScales(scale);
    for (std::int64_t i = threadIdx.x * 4; i < end_; i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      std::uint32_t codes[4];
#pragma unroll
      for (int j = 0; j < 4; j++) codes[j] = E4m3Code(__fdiv_rn(Bf16Value(bits[j]), scale));
      StoreCodes(i, codes, scale);
    }
  }

  // Four lanes hold the sixteen values that share a scale.
  template <typename Source>
  __device__ __forceinline__ void WriteNvfp4(const Source& source, float global_scale) const {
    for (std::int64_t i = threadIdx.x * 4; i < end_; i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      std::uint32_t largest = LargestOfFour(bits);
      largest = max(largest, __shfl_xor_sync(kEveryLane, largest, 1));
      largest = max(largest, __shfl_xor_sync(kEveryLane, largest, 2));
      const bool finite = largest < kBf16Infinity;
      const std::uint32_t code =
          finite ? E4m3Code(__fdiv_rn(__fmul_rn(global_scale, Bf16Value(largest)), 6.0F))
                 : kE4m3NanCode;
      const float scale = E4m3Value(code);
      const float factor = code == 0 || !finite ? 0.0F : __fdiv_rn(global_scale, scale);
      std::uint32_t values[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const std::uint32_t e2m1 =
            finite ? E2m1Code(__fmul_rn(Bf16Value(bits[j]), factor)) : std::uint32_t{0};
        values[j] = RoundDecoded(__fdiv_rn(__fmul_rn(E2m1Value(e2m1), scale), global_scale));
      }
      StoreFour(row_, i, values);
    }
  }

  // The values of a row's first fours, which each thread keeps between looking for the largest and
  // rounding: h is made of sums only once.
  static constexpr int kHeld = 2;
  using Held = uint2[kHeld];
  template <typename Source>
  __device__ __forceinline__ std::uint32_t LargestHolding(const Source& source, Held& held) const {
    std::uint32_t largest = 0;
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      std::uint32_t bits[4] = {};
      const std::int64_t i = (threadIdx.x + h * kRowThreads) * std::int64_t{4};
      if (i < end_) source.Four(i, bits);
      largest = max(largest, LargestOfFour(bits));
      held[h] = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
    }
    for (std::int64_t i = (threadIdx.x + kHeld * kRowThreads) * std::int64_t{4}; i < count_;
         i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      largest = max(largest, LargestOfFour(bits));
    }
    return LargestOfCta(largest);
  }

  template <typename Source>
  __device__ __forceinline__ void WriteIntegers(const Source& source, float most,
                                                float least) const {
    Held held;
    const std::uint32_t largest = LargestHolding(source, held);
    const bool finite = largest < kBf16Infinity;
    const float scale = __fdiv_rn(Bf16Value(largest), most);
    if (codes_ == RowCodes::kInt8 && threadIdx.x == 0) {
      StoreScale(0, finite ? scale : __uint_as_float(kFloatNanBits));
    }
    const auto store = [&](std::int64_t i, const std::uint32_t(&bits)[4]) {
      float codes[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        // The scale of the smallest values can itself become zero; their row is zeros then.
        codes[j] = scale == 0.0F || !finite
                       ? 0.0F
                       : fminf(fmaxf(rintf(__fdiv_rn(Bf16Value(bits[j]), scale)), least), most);
      }
      StoreIntegers(i, codes, scale, finite);
    };
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      const std::int64_t i = (threadIdx.x + h * kRowThreads) * std::int64_t{4};
      const std::uint32_t bits[4] = {held[h].x & 0xffffU, held[h].x >> 16, held[h].y & 0xffffU,
                                     held[h].y >> 16};
      if (i < end_) store(i, bits);
    }
    for (std::int64_t i = (threadIdx.x + kHeld * kRowThreads) * std::int64_t{4}; i < end_;
         i += kRowThreads * 4) {
      std::uint32_t bits[4];
      source.Four(i, bits);
      store(i, bits);
    }
  }
  __device__ __forceinline__ void StoreIntegers(std::int64_t i, const float (&codes)[4],
                                                float scale, bool finite) const {
    std::uint32_t bits[4];
    if (codes_ == RowCodes::kInt8) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        bits[j] = static_cast<std::uint32_t>(__float2int_rn(codes[j])) & 0xffU;
      *reinterpret_cast<std::uint32_t*>(row_ + i) =
          bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
      bits[j] = finite ? RoundDecoded(__fmul_rn(codes[j], scale)) : kBf16Nan;
    StoreFour(row_, i, bits);
  }

  std::byte* row_;
  float* scales_;
  std::int64_t scale_step_;
  std::int64_t count_;
  int groups_;
  std::int64_t end_;  // of the padded row: whole warps, and zeros behind the values
  RowCodes codes_;
};

// Raises `amax` by the largest finite magnitude of a row.
template <typename Source>
__device__ __forceinline__ void RecordLargest(const Source& source, std::int64_t count,
                                              float* amax) {
  std::uint32_t largest = 0;
  for (std::int64_t i = threadIdx.x * 4; i < count; i += kRowThreads * 4) {
    std::uint32_t bits[4];
    source.Four(i, bits);
#pragma unroll
    for (const std::uint32_t value : bits) {
      const std::uint32_t magnitude = value & 0x7fffU;
      if (magnitude < kBf16Infinity) largest = max(largest, magnitude);
    }
  }
  largest = LargestOfCta(largest);
  // Bits of floats that are not negative are ordered as the floats are.
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(amax), largest << 16);
}

}  // namespace switchyard::cuda
