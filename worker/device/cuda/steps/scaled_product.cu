// A CTA computes 64 weight rows of one expert for all its pairs, 64 at a time: four warps of 32 x
// 32, mma.m16n8k16. The next 64 k wait in registers while the tensor cores work.
#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/steps/scaled_product.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = 64;        // pairs, weight rows and k of a step
constexpr int kRow = kTile + 8;  // values of a row in shared memory; the pad spreads the banks
constexpr int kChunksOfThread = kTile * kTile / 8 / kThreads;  // of eight values

__device__ __forceinline__ std::uint32_t Bf16Pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
  return pair;
}

// Eight weights as they are stored, and as BF16. Every code is exact in BF16.
template <Route kRoute>
struct Code;
template <>
struct Code<Route::kScaledBf16> {
  static constexpr int kBytes = 2;
  uint4 raw;
  __device__ __forceinline__ void Load(const std::byte* from) {
    raw = *reinterpret_cast<const uint4*>(from);
  }
  [[nodiscard]] __device__ __forceinline__ uint4 Values() const { return raw; }
};
template <>
struct Code<Route::kScaledE4m3> {
  static constexpr int kBytes = 1;
  uint2 raw;
  __device__ __forceinline__ void Load(const std::byte* from) {
    raw = *reinterpret_cast<const uint2*>(from);
  }
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t codes) {
    return Bf16Pair(E4m3Value(codes & 0xffU), E4m3Value((codes >> 8) & 0xffU));
  }
  [[nodiscard]] __device__ __forceinline__ uint4 Values() const {
    return make_uint4(Pair(raw.x), Pair(raw.x >> 16), Pair(raw.y), Pair(raw.y >> 16));
  }
};
template <>
struct Code<Route::kScaledInt8> {
  static constexpr int kBytes = 1;
  uint2 raw;
  __device__ __forceinline__ void Load(const std::byte* from) {
    raw = *reinterpret_cast<const uint2*>(from);
  }
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t codes) {
    return Bf16Pair(static_cast<float>(static_cast<std::int8_t>(codes & 0xffU)),
                    static_cast<float>(static_cast<std::int8_t>((codes >> 8) & 0xffU)));
  }
  [[nodiscard]] __device__ __forceinline__ uint4 Values() const {
    return make_uint4(Pair(raw.x), Pair(raw.x >> 16), Pair(raw.y), Pair(raw.y >> 16));
  }
};

__device__ __forceinline__ void LoadMatrices(std::uint32_t (&out)[4], const std::uint16_t* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(from))
               : "memory");
}

__device__ __forceinline__ void Multiply(float (&sum)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

using Sums = float[2][4][4];  // of a warp: 2 x 16 pairs, 4 x 8 weight rows

template <Route kRoute>
class TileProduct {
 public:
  __device__ __forceinline__ TileProduct(const ScaledProduct& args, const MatrixFacts& of,
                                         std::uint16_t* rows, std::uint16_t* weights)
      : args_(args), of_(of), rows_(rows), weights_(weights) {}

  // Pairs `first`..first + count - 1, weight rows from `column` on.
  __device__ __forceinline__ void Run(int first, int count, int column) {
    Sums total = {};
    Sums part = {};
    Fetch(first, count, column, 0);
    const int steps = static_cast<int>(args_.k / kTile);
    for (int step = 0; step < steps; step++) {
      __syncthreads();
      Store();
      __syncthreads();
      if (step + 1 < steps) Fetch(first, count, column, (step + 1) * kTile);
      MultiplyTile(part);
      // Two steps are the 128 k of a scale.
      if (of_.scales != nullptr && step % 2 == 1) AddScaled(total, part, column, step / 2);
    }
    if (of_.scales == nullptr) {
      StoreSums(part, first, count, column);
    } else {
      StoreSums(total, first, count, column);
    }
  }

 private:
  __device__ __forceinline__ void Fetch(int first, int count, int column, int k) {
#pragma unroll
    for (int c = 0; c < kChunksOfThread; c++) {
      const int chunk = c * kThreads + static_cast<int>(threadIdx.x);
      const int row = chunk / (kTile / 8);
      const std::int64_t at = k + chunk % (kTile / 8) * 8;
      next_rows_[c] = row < count ? *reinterpret_cast<const uint4*>(
                                        args_.rows + (first + row) * args_.row_stride + at * 2)
                                  : make_uint4(0, 0, 0, 0);
      next_weights_[c].Load(of_.weights + ((column + row) * args_.k + at) * Code<kRoute>::kBytes);
    }
  }
  __device__ __forceinline__ void Store() {
#pragma unroll
    for (int c = 0; c < kChunksOfThread; c++) {
      const int chunk = c * kThreads + static_cast<int>(threadIdx.x);
      const int at = chunk / (kTile / 8) * kRow + chunk % (kTile / 8) * 8;
      *reinterpret_cast<uint4*>(rows_ + at) = next_rows_[c];
      *reinterpret_cast<uint4*>(weights_ + at) = next_weights_[c].Values();
    }
  }

  __device__ __forceinline__ int row_of_warp() const { return threadIdx.x / 64 * 32; }
  __device__ __forceinline__ int column_of_warp() const { return threadIdx.x / 32 % 2 * 32; }

  __device__ __forceinline__ void MultiplyTile(Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        LoadMatrices(a[i], rows_ + (row_of_warp() + i * 16 + lane % 16) * kRow + k + lane / 16 * 8);
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        // Matrices 0 and 1: k and k + 8 of eight weight rows; 2 and 3: of the next eight.
        std::uint32_t b[4];
        LoadMatrices(b, weights_ + (column_of_warp() + j * 16 + lane / 16 * 8 + lane % 8) * kRow +
                            k + lane / 8 % 2 * 8);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          Multiply(sums[i][2 * j], a[i], b[0], b[1]);
          Multiply(sums[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ int ColumnOf(int column, int j) const {
    return column + column_of_warp() + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
  }

  __device__ __forceinline__ void AddScaled(Sums& total, Sums& part, int column, int block) const {
    const std::int64_t blocks = args_.k / kPad;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int n = ColumnOf(column, j);
      const float low = of_.scales[n / of_.rows_of_scale * blocks + block];
      const float high = of_.scales[(n + 1) / of_.rows_of_scale * blocks + block];
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int v = 0; v < 4; v++) {
          total[i][j][v] = __fmaf_rn(part[i][j][v], v % 2 == 0 ? low : high, total[i][j][v]);
          part[i][j][v] = 0.0F;
        }
      }
    }
  }

  __device__ __forceinline__ void StoreSums(const Sums& sums, int first, int count,
                                            int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = row_of_warp() + i * 16 + half * 8 + lane / 4;
        if (row >= count) continue;
        float* out = args_.out + (first + row) * args_.out_stride;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          *reinterpret_cast<float2*>(out + ColumnOf(column, j)) =
              make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        }
      }
    }
  }

  const ScaledProduct& args_;
  const MatrixFacts& of_;
  std::uint16_t* rows_;
  std::uint16_t* weights_;
  uint4 next_rows_[kChunksOfThread];
  Code<kRoute> next_weights_[kChunksOfThread];
};

template <Route kRoute>
__global__ void __launch_bounds__(kThreads) Product(const __grid_constant__ ScaledProduct args) {
  __shared__ alignas(16) std::uint16_t rows[kTile * kRow];
  __shared__ alignas(16) std::uint16_t weights[kTile * kRow];
  const int slot = static_cast<int>(blockIdx.y);
  const int count = args.counts[slot];
  if (count == 0) return;
  const ExpertFacts& expert = args.experts[slot];
  const MatrixFacts of = args.down ? expert.down : expert.gate_up;
  TileProduct<kRoute> tile(args, of, rows, weights);
  const int offset = args.offsets[slot];
  for (int done = 0; done < count; done += kTile) {
    tile.Run(offset + done, min(kTile, count - done), static_cast<int>(blockIdx.x) * kTile);
  }
}

}  // namespace

cudaError_t MultiplyScaled(const ScaledProduct& product, cudaStream_t stream) {
  if (product.n < 1 || product.k < 1 || product.n % kPad != 0 || product.k % kPad != 0 ||
      product.slots < 0 || product.slots > 65535) {
    return cudaErrorInvalidValue;
  }
  if (product.slots == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(product.n / kTile), static_cast<unsigned>(product.slots));
  switch (product.route) {
    case Route::kScaledBf16:
      Product<Route::kScaledBf16><<<grid, kThreads, 0, stream>>>(product);
      break;
    case Route::kScaledE4m3:
      Product<Route::kScaledE4m3><<<grid, kThreads, 0, stream>>>(product);
      break;
    case Route::kScaledInt8:
      Product<Route::kScaledInt8><<<grid, kThreads, 0, stream>>>(product);
      break;
    case Route::kBf16:
    case Route::kFp8:
    case Route::kInt8:
    case Route::kInt4:
    case Route::kInt4Fp8:
    case Route::kE2m1:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
