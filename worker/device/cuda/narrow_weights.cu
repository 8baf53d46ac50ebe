#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/narrow_codes.cuh"
#include "worker/device/cuda/narrow_weights.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kGridMax = 8192;
constexpr int kPairsOfBlock = kNarrowRows / 2;  // of rows g and g + 8 of a warp's sixteen
constexpr int kSteps = kNarrowK / kNarrowStep;
constexpr float kLeastOfAll = -128.0F;  // BF16 holds integers to 256
constexpr float kMostOfAll = 127.0F;
constexpr float kInt4Least = -8.0F;                // of kInt4Fp8
constexpr std::uint32_t kScaleOfZeros = 16U << 3;  // 1

unsigned GridFor(std::int64_t count) {
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kGridMax ? blocks : kGridMax);
}

__device__ __forceinline__ float ValueAt(const NarrowSource& from, std::int64_t row,
                                         std::int64_t k) {
  return row < from.rows && k < from.columns ? Bf16Value(from.values[row * from.columns + k])
                                             : 0.0F;
}

struct Integers {
  float least;
  bool fit;
  bool fit_signed;  // four bits without a least integer
};
// Of 128 values of a row.
__device__ Integers IntegersOf(const NarrowSource& from, std::int64_t row, std::int64_t k) {
  float least = kMostOfAll;
  float most = kLeastOfAll;
  bool whole = true;
  for (int i = 0; i < kNarrowK; i++) {
    const float value = ValueAt(from, row, k + i);
    whole = whole && rintf(value) == value;
    least = fminf(least, value);
    most = fmaxf(most, value);
  }
  return {least, whole && least >= kLeastOfAll && most <= kMostOfAll && most - least <= 15.0F,
          whole && least >= kInt4Least && most <= kInt4Least + 15.0F};
}

struct SixteenCodes {
  std::uint32_t codes[kNarrowStep];
  std::uint32_t scale;  // the byte of NarrowFactor
  bool fit;
};

// Whether every value is an E2M1 value times `scale`.
__device__ bool TakesScale(const float (&values)[kNarrowStep], float scale, SixteenCodes* out) {
  const std::uint32_t bits = __float_as_uint(scale);
  const int high = static_cast<int>(bits >> 23) - 127 + 16;
  if ((bits & 0x000fffffU) != 0 || high < 0 || high > 31) return false;
  out->scale = static_cast<std::uint32_t>(high) << 3 | (bits >> 20 & 7U);
  bool all = true;
  for (int i = 0; i < kNarrowStep; i++) {
    out->codes[i] = E2m1Code(__fdiv_rn(values[i], scale));
    all = all && __fmul_rn(E2m1Value(out->codes[i]), scale) == values[i];
  }
  return all;
}

// The scale of the checkpoint is not known here: the largest value is one of seven codes times it.
__device__ SixteenCodes SixteenOf(const NarrowSource& from, std::int64_t row, std::int64_t k) {
  constexpr float kMagnitudes[] = {6.0F, 4.0F, 3.0F, 2.0F, 1.5F, 1.0F, 0.5F};
  float values[kNarrowStep];
  float largest = 0.0F;
  bool numbers = true;
  for (int i = 0; i < kNarrowStep; i++) {
    values[i] = ValueAt(from, row, k + i);
    largest = fmaxf(largest, fabsf(values[i]));
    numbers = numbers && values[i] == values[i];
  }
  SixteenCodes out = {{}, kScaleOfZeros, numbers};
  if (largest == 0.0F || !numbers) return out;
  for (const float magnitude : kMagnitudes) {
    if (TakesScale(values, __fdiv_rn(largest, magnitude), &out)) return out;
  }
  out.fit = false;
  return out;
}

__global__ void Find(const NarrowSource from, NarrowMisfits* misfits) {
  const std::int64_t blocks = (from.columns + kNarrowK - 1) / kNarrowK;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  bool int4 = true;
  bool int4_signed = true;
  bool e2m1 = true;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < from.rows * blocks;
       i += step) {
    const std::int64_t row = i / blocks;
    const std::int64_t k = i % blocks * kNarrowK;
    const Integers integers = IntegersOf(from, row, k);
    int4 = int4 && integers.fit;
    int4_signed = int4_signed && integers.fit_signed;
    for (int s = 0; s < kSteps && e2m1; s++) e2m1 = SixteenOf(from, row, k + s * kNarrowStep).fit;
  }
  // Threads that race write the same word.
  if (!int4) misfits->int4 = 1;
  if (!int4_signed) misfits->int4_signed = 1;
  if (!e2m1) misfits->e2m1 = 1;
}

struct PackArguments {
  NarrowSource from;
  NarrowScales scales;
  std::byte* out;
  std::int64_t k_blocks;
  std::int64_t block_bytes;
  std::int64_t pairs;  // of rows, in all blocks
};

// Codes of sixteen values of a row.
template <WeightType kType>
__device__ void CodesOf(const NarrowSource& from, std::int64_t row, std::int64_t k, float least,
                        std::byte* scale, std::uint32_t (&codes)[kNarrowStep]) {
  if constexpr (kType != WeightType::kE2m1) {
    for (int i = 0; i < kNarrowStep; i++) {
      codes[i] = static_cast<std::uint32_t>(static_cast<int>(ValueAt(from, row, k + i) - least));
    }
  } else {
    const SixteenCodes sixteen = SixteenOf(from, row, k);
    for (int i = 0; i < kNarrowStep; i++) codes[i] = sixteen.codes[i];
    *scale = static_cast<std::byte>(sixteen.scale);
  }
}

// Stores behind the codes of a block what row `of_tile` needs beside them, and returns the least
// integer of the row's 128 k.
template <WeightType kType>
__device__ float StoreInt4Scale(const PackArguments& args, std::int64_t block, int of_tile,
                                std::byte* scales) {
  const std::int64_t row = block / args.k_blocks * kNarrowRows + of_tile;
  const std::int64_t k_block = block % args.k_blocks;
  const NarrowScales& of = args.scales;
  const float scale =
      of.values == nullptr ? 1.0F : of.values[row / of.rows_of_scale * args.k_blocks + k_block];
  if (kType == WeightType::kInt4Fp8) {
    reinterpret_cast<float*>(scales)[Int4Fp8Scale(of_tile)] = scale * kInt4Fp8Unit;
    return kInt4Least;
  }
  const float least = IntegersOf(args.from, row, k_block * kNarrowK).least;
  const std::uint32_t bits = __float_as_uint(least - 128.0F) >> 16;
  *reinterpret_cast<float2*>(scales + of_tile * 8) =
      make_float2(scale, __uint_as_float(bits << 16 | bits));
  return least;
}

// Puts a row's sixteen codes into the words of the four threads that multiply them.
template <WeightType kType>
__device__ void PlaceCodes(const std::uint32_t (&codes)[kNarrowStep], int half,
                           std::uint32_t (&words)[4]) {
  for (int k = 0; k < kNarrowStep; k++) {
    const int pair = half + k / 8 * 2;
    if (kType == WeightType::kInt4Fp8) {
      words[k / 4] |= PlaceInt4Fp8(codes[k], half, k % 4);
    } else if (kType == WeightType::kInt4) {
      words[k % 8 / 2] |= PlaceInt4(codes[k], pair, k % 2);
    } else {
      words[k % 8 / 2] |= PlaceE2m1(codes[k], pair, k % 2);
    }
  }
}

// A thread packs the 128 k of a block of two rows, g and g + 8 of a warp's sixteen.
template <WeightType kType>
__global__ void Pack(const PackArguments args) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < args.pairs;
       i += stride) {
    const int warp = static_cast<int>(i % kPairsOfBlock) / 8;
    const int g = static_cast<int>(i % 8);
    const std::int64_t block = i / kPairsOfBlock;
    const std::int64_t k_block = block % args.k_blocks;
    std::byte* const to = args.out + block * args.block_bytes;
    const int of_tile[2] = {warp * 16 + g, warp * 16 + g + 8};
    float least[2] = {};
    for (int half = 0; half < 2 && kType != WeightType::kE2m1; half++) {
      least[half] = StoreInt4Scale<kType>(args, block, of_tile[half], to + kNarrowCodeBytes);
    }
    for (int step = 0; step < kSteps; step++) {
      std::uint32_t words[4] = {};
      for (int half = 0; half < 2; half++) {
        std::uint32_t codes[kNarrowStep];
        CodesOf<kType>(args.from, block / args.k_blocks * kNarrowRows + of_tile[half],
                       k_block * kNarrowK + step * kNarrowStep, least[half],
                       to + kNarrowCodeBytes + of_tile[half] * 8 + step, codes);
        PlaceCodes<kType>(codes, half, words);
      }
      for (int c = 0; c < 4; c++) {
        reinterpret_cast<std::uint32_t*>(to)[NarrowWord(warp, 4 * g + c, step)] = words[c];
      }
    }
  }
}

}  // namespace

cudaError_t FindNarrowMisfits(const NarrowSource& from, NarrowMisfits* misfits,
                              cudaStream_t stream) {
  if (from.rows < 1 || from.columns < 1) return cudaErrorInvalidValue;
  const std::int64_t blocks = (from.columns + kNarrowK - 1) / kNarrowK;
  Find<<<GridFor(from.rows * blocks), kThreads, 0, stream>>>(from, misfits);
  return cudaGetLastError();
}

cudaError_t PackNarrow(const NarrowSource& from, WeightType type, const NarrowScales& scales,
                       std::byte* out, cudaStream_t stream) {
  if (from.rows < 1 || from.columns < 1 || !IsNarrow(type) || out == nullptr ||
      reinterpret_cast<std::uintptr_t>(out) % 128 != 0 ||
      (scales.values != nullptr && scales.rows_of_scale < 1)) {
    return cudaErrorInvalidValue;
  }
  const std::int64_t tiles = (from.rows + kNarrowRows - 1) / kNarrowRows;
  const std::int64_t k_blocks = (from.columns + kNarrowK - 1) / kNarrowK;
  const PackArguments args = {
      from, scales, out, k_blocks, NarrowBlockBytes(type), tiles * k_blocks * kPairsOfBlock};
  if (type == WeightType::kInt4) {
    Pack<WeightType::kInt4><<<GridFor(args.pairs), kThreads, 0, stream>>>(args);
  } else if (type == WeightType::kInt4Fp8) {
    Pack<WeightType::kInt4Fp8><<<GridFor(args.pairs), kThreads, 0, stream>>>(args);
  } else {
    Pack<WeightType::kE2m1><<<GridFor(args.pairs), kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
