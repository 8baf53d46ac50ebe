// One CTA a row, sixteen values a thread at a time.
#include "worker/device/cuda/codec.h"
#include "worker/device/cuda/codec_launch.h"
#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/row_access.cuh"

namespace switchyard::cuda {
namespace {

struct DecodeArguments {
  EncodedRows in;
  DecodedRows out;
  float global_scale;
};

struct Fp8Codes {
  static constexpr int kWords = 4;
  static __device__ __forceinline__ float Value(std::uint32_t word, int i) {
    return E4m3Value((word >> (i * 8)) & 0xffU);
  }
};
struct Int8Codes {
  static constexpr int kWords = 4;
  static __device__ __forceinline__ float Value(std::uint32_t word, int i) {
    return static_cast<float>(static_cast<std::int8_t>((word >> (i * 8)) & 0xffU));
  }
};
struct Nvfp4Codes {
  static constexpr int kWords = 2;
  static __device__ __forceinline__ float Value(std::uint32_t word, int i) {
    return E2m1Value((word >> (i * 4)) & 0xfU);
  }
};

// The scale of the sixteen values at `at`.
template <RowFormat kFormat>
__device__ __forceinline__ float ScaleAt(const std::byte* scales, std::int64_t at) {
  if constexpr (kFormat == RowFormat::kFp8) {
    return reinterpret_cast<const float*>(scales)[at / 128];
  } else if constexpr (kFormat == RowFormat::kFp8Ue8m0) {
    return Ue8m0Value(static_cast<std::uint32_t>(scales[at / 128]));
  } else if constexpr (kFormat == RowFormat::kInt8) {
    return *reinterpret_cast<const float*>(scales);
  } else {
    return E4m3Value(static_cast<std::uint32_t>(scales[at / kChunk]));
  }
}

template <RowFormat kFormat, typename Codes, bool kWide>
__global__ void DecodeScaled(const DecodeArguments args) {
  const std::byte* data = args.in.data + blockIdx.x * args.in.data_stride;
  const std::byte* scales = args.in.scales + blockIdx.x * args.in.scale_stride;
  std::uint16_t* out = args.out.out + blockIdx.x * args.out.stride;
  constexpr int kPerWord = kChunk / Codes::kWords;
  for (std::int64_t at = threadIdx.x * kChunk; at < args.out.hidden; at += blockDim.x * kChunk) {
    const std::int64_t left = args.out.hidden - at;
    std::uint32_t words[Codes::kWords];
    LoadCodes<kWide>(data + at * Codes::kWords / 4, (left * Codes::kWords + 3) / 4, words);
    const float scale = ScaleAt<kFormat>(scales, at);
    Chunk chunk{};
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      float value = __fmul_rn(Codes::Value(words[i / kPerWord], i % kPerWord), scale);
      if constexpr (kFormat == RowFormat::kNvfp4) value = __fdiv_rn(value, args.global_scale);
      chunk.pairs[i / 2] |= RoundDecoded(value) << (i % 2 * 16);
    }
    StoreChunk<kWide>(out + at, left, chunk);
  }
}

template <bool kWide>
__global__ void DecodeBf16(const DecodeArguments args) {
  const std::byte* data = args.in.data + blockIdx.x * args.in.data_stride;
  std::uint16_t* out = args.out.out + blockIdx.x * args.out.stride;
  for (std::int64_t at = threadIdx.x * kChunk; at < args.out.hidden; at += blockDim.x * kChunk) {
    const std::int64_t left = args.out.hidden - at;
    Chunk chunk{};
    if constexpr (kWide) {
      chunk = LoadChunk<true>(reinterpret_cast<const std::uint16_t*>(data) + at, left);
    } else {  // The row may start at an odd address.
      LoadCodes<false>(data + at * 2, left * 2, chunk.pairs);
    }
    StoreChunk<kWide>(out + at, left, chunk);
  }
}

bool IsWide(const EncodedRows& in, const DecodedRows& out) {
  return out.hidden % kChunk == 0 && AreMultiples(16, out.out, out.stride * 2) &&
         AreMultiples(16, in.data, in.data_stride);
}

template <bool kWide>
cudaError_t Launch(RowFormat format, const DecodeArguments& args, cudaStream_t stream) {
  using enum RowFormat;
  const auto rows = static_cast<unsigned>(args.out.rows);
  const unsigned threads = ThreadsOfRow(args.out.hidden);
  switch (format) {
    case kBf16:
      DecodeBf16<kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case kFp8:
      DecodeScaled<kFp8, Fp8Codes, kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case kFp8Ue8m0:
      DecodeScaled<kFp8Ue8m0, Fp8Codes, kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case kInt8:
      DecodeScaled<kInt8, Int8Codes, kWide><<<rows, threads, 0, stream>>>(args);
      break;
    case kNvfp4:
      DecodeScaled<kNvfp4, Nvfp4Codes, kWide><<<rows, threads, 0, stream>>>(args);
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t DecodeRows(RowFormat format, const EncodedRows& in, float global_scale,
                       const DecodedRows& out, cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  if (!IsValidShape(out.rows, out.hidden, out.stride) || out.out == nullptr ||
      !IsValidLayout(format, out.hidden, in)) {
    return cudaErrorInvalidValue;
  }
  const DecodeArguments args = {in, out, global_scale};
  return IsWide(in, out) ? Launch<true>(format, args, stream) : Launch<false>(format, args, stream);
}

}  // namespace switchyard::cuda
