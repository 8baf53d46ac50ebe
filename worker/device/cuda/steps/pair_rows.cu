#include "worker/device/cuda/steps/pair_rows.h"
#include "worker/device/cuda/steps/row_rounding.cuh"
#include "worker/device/cuda/swiglu_math.cuh"

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
  __device__ __forceinline__ WireRow(const PassRow& from, std::int64_t hidden)
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
  const PassRow& from_;
  const std::int64_t hidden_;
};

// The codes of a wire row, where products read such codes.
__device__ __forceinline__ RowCodes CodesOf(RowFormat format) {
  if (format == RowFormat::kFp8 || format == RowFormat::kFp8Ue8m0) return RowCodes::kE4m3;
  return format == RowFormat::kInt8 ? RowCodes::kInt8 : RowCodes::kBf16;
}

// Whether the bytes of a row travel as they are, 16 at a time.
__device__ __forceinline__ bool IsWhole(const PassRow& from, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0 && bytes % 256 == 0;
}
__device__ __forceinline__ void CopyWhole(const PassRow& from, std::int64_t bytes, std::byte* to) {
  for (std::int64_t i = threadIdx.x * 16; i < bytes; i += kRowThreads * 16) {
    *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from.data + i);
  }
}

__device__ __forceinline__ void LoadPair(const PairList& list, const PassRow& from,
                                         const PairTerm& term, std::int64_t hidden,
                                         const PairRows& out) {
  const ExpertFacts expert = list.experts[term.slot];  // a copy: stores of the row cannot change it
  const WireRow wire(from, hidden);
  if (list.amax != nullptr) RecordLargest(wire, hidden, list.amax + 2 * term.slot);
  const RowCodes codes = CodesOf(expert.route);
  const RowWriter writer(out, term.place, codes, hidden);
  if (from.rounded && codes == RowCodes::kE4m3Sums && CodesOf(from.format) == RowCodes::kE4m3) {
    for (std::int64_t i = threadIdx.x * 4; i < writer.end(); i += kRowThreads * 4) {
      const std::uint32_t four = wire.Codes(i);
      const std::uint32_t split[4] = {four & 0xffU, four >> 8 & 0xffU, four >> 16 & 0xffU,
                                      four >> 24};
      writer.StoreCodes(i, split, wire.ScaleOf(i));
    }
    return;
  }
  if (from.rounded && codes != RowCodes::kBf16 && codes == CodesOf(from.format)) {
    if (IsWhole(from, hidden)) {
      CopyWhole(from, hidden, writer.row());
    } else {
      for (std::int64_t i = threadIdx.x * 4; i < writer.end(); i += kRowThreads * 4) {
        *reinterpret_cast<std::uint32_t*>(writer.row() + i) = wire.Codes(i);
      }
    }
    const int scales = codes == RowCodes::kInt8 ? 1 : writer.groups();
    for (int g = threadIdx.x; g < scales; g += kRowThreads) {
      writer.StoreScale(g, wire.ScaleOf(g * std::int64_t{128}));
    }
    return;
  }
  const RoundingRule rule = from.rounded && !IsE4m3(codes) ? RoundingRule{} : expert.inputs;
  if (codes == RowCodes::kBf16 && from.format == RowFormat::kBf16 &&
      rule.format == Rounding::kBf16 && IsWhole(from, 2 * hidden)) {
    CopyWhole(from, 2 * hidden, writer.row());
    return;
  }
  writer.Write(wire, rule);
}

// A CTA for each pair.
__global__ void __launch_bounds__(kRowThreads)
    LoadRows(const PairList list, const std::int64_t hidden, const PairRows out) {
  const PassRow from = list.rows[blockIdx.x];
  const PairTerm term = list.terms[blockIdx.x * std::int64_t{list.width} + blockIdx.y];
  if (term.place >= 0) LoadPair(list, from, term, hidden, out);
}

// Whether a row's bytes are what the expert reads.
__device__ __forceinline__ bool IsCopied(const PassRow& from, const ExpertFacts& expert,
                                         std::int64_t hidden) {
  const RowCodes codes = CodesOf(expert.route);
  if (from.format == RowFormat::kBf16) {
    return codes == RowCodes::kBf16 && expert.inputs.format == Rounding::kBf16 &&
           IsWhole(from, 2 * hidden);
  }
  return from.rounded && codes != RowCodes::kBf16 && codes == CodesOf(from.format) &&
         IsWhole(from, hidden);
}

// A CTA for each row, which is read once for all experts that take its bytes as they are.
__global__ void __launch_bounds__(kRowThreads)
    LoadRowsOnce(const PairList list, const std::int64_t hidden, const PairRows out) {
  constexpr int kTermsAtOnce = 32;
  __shared__ int places[kTermsAtOnce];  // of copies, -1 for other terms
  const PassRow from = list.rows[blockIdx.x];
  const WireRow wire(from, hidden);
  const RowCodes codes = CodesOf(from.format);
  const bool copies_codes = codes != RowCodes::kBf16;
  const std::int64_t bytes = copies_codes ? hidden : 2 * hidden;
  const int groups = !copies_codes              ? 0
                     : codes == RowCodes::kInt8 ? 1
                                                : static_cast<int>(hidden / 128);
  for (int done = 0; done < list.width; done += kTermsAtOnce) {
    const PairTerm* const terms = list.terms + blockIdx.x * std::int64_t{list.width} + done;
    const int count = min(kTermsAtOnce, list.width - done);
    bool copied = false;
    if (static_cast<int>(threadIdx.x) < count) {
      const PairTerm term = terms[threadIdx.x];
      copied = term.place >= 0 && list.amax == nullptr &&
               IsCopied(from, list.experts[term.slot], hidden);
      places[threadIdx.x] = copied ? term.place : -1;
    }
    const bool any = __syncthreads_or(copied ? 1 : 0) != 0;
    for (std::int64_t i = threadIdx.x * 16; any && i < bytes; i += kRowThreads * 16) {
      const uint4 values = *reinterpret_cast<const uint4*>(from.data + i);
      for (int t = 0; t < count; t++) {
        if (places[t] < 0) continue;
        *reinterpret_cast<uint4*>(out.rows + places[t] * out.stride + i) = values;
      }
    }
    for (int i = threadIdx.x; any && i < groups * count; i += kRowThreads) {
      const int place = places[i % count];
      if (place >= 0) {
        RowWriter(out, place, codes, hidden)
            .StoreScale(i / count, wire.ScaleOf(i / count * std::int64_t{128}));
      }
    }
    for (int t = 0; t < count; t++) {
      const PairTerm term = terms[t];
      if (term.place >= 0 && places[t] < 0) LoadPair(list, from, term, hidden, out);
    }
    __syncthreads();
  }
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
    const std::uint32_t low = SwigluPair(gate.x, up.x, gate.y, up.y);
    const std::uint32_t high = SwigluPair(gate.z, up.z, gate.w, up.w);
    bits[0] = low & 0xffffU, bits[1] = low >> 16;
    bits[2] = high & 0xffffU, bits[3] = high >> 16;
  }

 private:
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
    Swiglu(const PairList list, const PairSums sums, const std::int64_t intermediate,
           const std::int64_t padded, const PairRows out) {
  const PairTerm term = list.terms[blockIdx.x * std::int64_t{list.width} + blockIdx.y];
  if (term.place < 0) return;
  const ExpertFacts expert = list.experts[term.slot];
  if ((sums.routes >> static_cast<int>(expert.route) & 1U) == 0) return;
  const SwigluRow h(sums.sums + term.place * sums.stride, expert.gate_up, padded);
  if (list.amax != nullptr) RecordLargest(h, intermediate, list.amax + 2 * term.slot + 1);
  const RowWriter writer(out, term.place, CodesOf(expert.route), intermediate);
  writer.Write(h, expert.middle);
}

constexpr std::int32_t kFewRows = 1024;  // they need a CTA for each pair

bool IsValid(const PairList& list) { return list.count >= 1 && list.width >= 1; }

}  // namespace

cudaError_t LoadPairRows(const PairList& list, std::int64_t hidden, const PairRows& out,
                         cudaStream_t stream) {
  if (!IsValid(list) || hidden < 1) return cudaErrorInvalidValue;
  if (list.count > kFewRows) {
    LoadRowsOnce<<<static_cast<unsigned>(list.count), kRowThreads, 0, stream>>>(list, hidden, out);
  } else {
    const dim3 grid(static_cast<unsigned>(list.count), static_cast<unsigned>(list.width));
    LoadRows<<<grid, kRowThreads, 0, stream>>>(list, hidden, out);
  }
  return cudaGetLastError();
}

cudaError_t SwigluPairRows(const PairList& list, const PairSums& sums, std::int64_t intermediate,
                           const PairRows& out, cudaStream_t stream) {
  if (!IsValid(list) || intermediate < 1) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(list.count), static_cast<unsigned>(list.width));
  Swiglu<<<grid, kRowThreads, 0, stream>>>(list, sums, intermediate, Padded(intermediate), out);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
