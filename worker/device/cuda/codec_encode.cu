// One CTA a row; a thread takes sixteen values at a time, neighbors share a group's largest
// magnitude by shuffles.
#include "worker/device/cuda/codec.h"
#include "worker/device/cuda/codec_launch.h"
#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/row_access.cuh"
#include "worker/device/cuda/row_codes.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kFp8Group = 128;
constexpr int kLanesOfFp8Group = kFp8Group / kChunk;
constexpr std::uint32_t kAllLanes = 0xffffffffU;

struct EncodeArguments {
  GatheredRows in;
  EncodedRows out;
  float global_scale;
};

__device__ __forceinline__ const std::uint16_t* SourceRow(const GatheredRows& in) {
  const std::int64_t row = in.index == nullptr ? blockIdx.x : in.index[blockIdx.x];
  return in.activations + row * in.stride;
}

// A warp stores 512 bytes in one piece. Two stores of a thread's sixteen values would each fill
// half of every sector: over the bus to memory of the host, where nothing joins them, that takes
// four times as long.
__device__ __forceinline__ void CopyWideRow(const std::uint16_t* from, std::uint16_t* to,
                                            std::int64_t hidden) {
  constexpr int kValues = 8;
  const auto* words = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(to);
  for (std::int64_t i = threadIdx.x; i < hidden / kValues; i += blockDim.x) {
    out[i] = __ldg(words + i);
  }
}

template <bool kWide>
__global__ void EncodeBf16(const EncodeArguments args) {
  const std::uint16_t* row = SourceRow(args.in);
  auto* out = reinterpret_cast<std::uint16_t*>(args.out.data + blockIdx.x * args.out.data_stride);
  if constexpr (kWide) {
    CopyWideRow(row, out, args.in.hidden);
  } else {  // The row may start at an odd address.
    for (std::int64_t at = threadIdx.x * kChunk; at < args.in.hidden; at += blockDim.x * kChunk) {
      const std::int64_t left = args.in.hidden - at;
      const Chunk chunk = LoadChunk<false>(row + at, left);
      std::uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 8; i++) words[i] = chunk.pairs[i];
      StoreCodes<false>(reinterpret_cast<std::byte*>(out + at), left * 2, words);
    }
  }
}

struct Fp32Scales : FullFp8Scale {
  static constexpr int kBytes = 4;
  static __device__ __forceinline__ void Store(const Fp8Scale& scale, std::byte* to) {
    *reinterpret_cast<float*>(to) = scale.value;
  }
};
struct Ue8m0Scales : Pow2Fp8Scale {
  static constexpr int kBytes = 1;
  static __device__ __forceinline__ void Store(const Fp8Scale& scale, std::byte* to) {
    *to = static_cast<std::byte>(scale.finite ? __float_as_uint(scale.value) >> 23 : 0xffU);
  }
};

template <typename Scales, bool kWide>
__global__ void EncodeFp8(const EncodeArguments args) {
  const std::uint16_t* row = SourceRow(args.in);
  std::byte* data = args.out.data + blockIdx.x * args.out.data_stride;
  std::byte* scales = args.out.scales + blockIdx.x * args.out.scale_stride;
  const std::int64_t hidden = args.in.hidden;
  // Whole groups of lanes stay in the loop, so that all can take part in the shuffles.
  const std::int64_t end = (hidden + kFp8Group - 1) / kFp8Group * kFp8Group;
  for (std::int64_t base = 0; base < end; base += blockDim.x * kChunk) {
    const std::int64_t at = base + threadIdx.x * kChunk;
    const Chunk chunk = LoadChunk<kWide>(row + at, hidden - at);
    std::uint32_t largest = LargestMagnitude(chunk);
#pragma unroll
    for (int lanes = 1; lanes < kLanesOfFp8Group; lanes *= 2) {
      largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    }
    if (at >= end) continue;
    const Fp8Scale scale = Scales::Of(largest);
    if (threadIdx.x % kLanesOfFp8Group == 0) {
      Scales::Store(scale, scales + at / kFp8Group * Scales::kBytes);
    }
    std::uint32_t words[4];
    EncodeFp8Chunk(chunk, scale, words);
    StoreCodes<kWide>(data + at, hidden - at, words);
  }
}

// The largest of a CTA's magnitudes, in every thread.
__device__ std::uint32_t LargestOfBlock(std::uint32_t largest) {
  __shared__ std::uint32_t of_warp[32];
  largest = __reduce_max_sync(kAllLanes, largest);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  const std::uint32_t mine = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0;
  return __reduce_max_sync(kAllLanes, mine);
}

template <bool kWide>
__global__ void EncodeInt8(const EncodeArguments args) {
  const std::uint16_t* row = SourceRow(args.in);
  std::byte* data = args.out.data + blockIdx.x * args.out.data_stride;
  const std::int64_t hidden = args.in.hidden;
  const std::int64_t first = threadIdx.x * kChunk;
  const Chunk kept = LoadChunk<kWide>(row + first, hidden - first);
  std::uint32_t largest = LargestMagnitude(kept);
  for (std::int64_t at = first + blockDim.x * kChunk; at < hidden; at += blockDim.x * kChunk) {
    largest = max(largest, LargestMagnitude(LoadChunk<kWide>(row + at, hidden - at)));
  }
  const Int8Scale scale = Int8Scale::Of(LargestOfBlock(largest));
  if (threadIdx.x == 0) {
    *reinterpret_cast<float*>(args.out.scales + blockIdx.x * args.out.scale_stride) = scale.value;
  }
  for (std::int64_t at = first; at < hidden; at += blockDim.x * kChunk) {
    const Chunk chunk = at == first ? kept : LoadChunk<kWide>(row + at, hidden - at);
    std::uint32_t words[4];
    EncodeInt8Chunk(chunk, scale, words);
    StoreCodes<kWide>(data + at, hidden - at, words);
  }
}

template <bool kWide>
__global__ void EncodeNvfp4(const EncodeArguments args) {
  const std::uint16_t* row = SourceRow(args.in);
  std::byte* data = args.out.data + blockIdx.x * args.out.data_stride;
  std::byte* scales = args.out.scales + blockIdx.x * args.out.scale_stride;
  const std::int64_t hidden = args.in.hidden;
  for (std::int64_t at = threadIdx.x * kChunk; at < hidden; at += blockDim.x * kChunk) {
    const Chunk chunk = LoadChunk<kWide>(row + at, hidden - at);
    std::uint32_t words[2];
    scales[at / kChunk] = static_cast<std::byte>(EncodeNvfp4Chunk(chunk, args.global_scale, words));
    StoreCodes<kWide>(data + at / 2, (hidden - at + 1) / 2, words);
  }
}

bool IsWide(const GatheredRows& in, const EncodedRows& out) {
  return in.hidden % kChunk == 0 && AreMultiples(16, in.activations, in.stride * 2) &&
         AreMultiples(16, out.data, out.data_stride);
}

template <bool kWide>
cudaError_t Launch(RowFormat format, const EncodeArguments& args, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(args.in.rows);
  const unsigned threads = ThreadsOfRow(args.in.hidden);
  switch (format) {
    case RowFormat::kBf16:
      EncodeBf16<kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case RowFormat::kFp8:
      EncodeFp8<Fp32Scales, kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case RowFormat::kFp8Ue8m0:
      EncodeFp8<Ue8m0Scales, kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case RowFormat::kInt8:
      EncodeInt8<kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case RowFormat::kNvfp4:
      EncodeNvfp4<kWide><<<rows, threads, 0, stream>>>(args);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t EncodeRows(RowFormat format, const GatheredRows& rows, float global_scale,
                       const EncodedRows& out, cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  if (!IsValidShape(rows.rows, rows.hidden, rows.stride) ||
      !IsValidLayout(format, rows.hidden, out)) {
    return cudaErrorInvalidValue;
  }
  const EncodeArguments args = {rows, out, global_scale};
  return IsWide(rows, out) ? Launch<true>(format, args, stream)
                           : Launch<false>(format, args, stream);
}

}  // namespace switchyard::cuda
