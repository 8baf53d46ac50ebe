// wgmma: D[64 x N] += A[64 x k] * B[N x k], both operands in shared memory, K-major, in the
// 128-byte swizzle, accumulators in FP32 or INT32 registers of the 128 threads of a warpgroup.
//
// Thread t of the warpgroup, warp w = t / 32 and lane l = t % 32, holds in d[4 j + i] the element
// of row 16 w + l / 4 + 8 (i / 2) and column 8 j + 2 (l % 4) + i % 2. A step covers 32 bytes of k:
// 32 E4M3 or INT8 or 16 BF16 values. Issue: FenceAccumulators, steps, CommitMma, WaitMma<0>,
// TouchAccumulators.
#pragma once

#include <cstdint>
#include <type_traits>

namespace switchyard::cuda {

// kInt4 and kE2m1: weights that become BF16 in registers; kInt4Fp8: E4M3.
enum class MmaType { kE4m3, kBf16, kInt8, kInt4, kInt4Fp8, kE2m1 };
// Products of this type are summed in it.
template <MmaType kType>
using MmaSum = std::conditional_t<kType == MmaType::kInt8, std::int32_t, float>;

__device__ __forceinline__ void FenceAccumulators() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitMma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WaitMma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading accumulators before the wait above it.
template <int kCount>
__device__ __forceinline__ void TouchAccumulators(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void TouchAccumulators(std::int32_t (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// Descriptor of a tile whose rows are 128 bytes: atoms of 8 rows (1024 bytes, aligned so) follow
// each other. Adding 2 moves 32 bytes along k.
__device__ __forceinline__ std::uint64_t MmaDescriptor(std::uint32_t shared_address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kAtomStride = std::uint64_t{1024 >> 4} << 32;
  constexpr std::uint64_t kLeadingStride = std::uint64_t{1} << 16;  // unused with this swizzle
  return ((shared_address & 0x3ffff) >> 4) | kLeadingStride | kAtomStride | kSwizzle128;
}

// One step of a product with N columns; `accumulate` 0 starts from zero.
template <int kColumns, MmaType kType>
struct Mma;

// The lists of register operands; asm takes no loops.
#define SY_MMA_REGS_4 "%0, %1, %2, %3"
#define SY_MMA_REGS_8 SY_MMA_REGS_4 ", %4, %5, %6, %7"
#define SY_MMA_REGS_12 SY_MMA_REGS_8 ", %8, %9, %10, %11"
#define SY_MMA_REGS_16 SY_MMA_REGS_12 ", %12, %13, %14, %15"
#define SY_MMA_REGS_24 SY_MMA_REGS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SY_MMA_REGS_32 SY_MMA_REGS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SY_MMA_D_4(c, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define SY_MMA_D_8(c) SY_MMA_D_4(c, 0), SY_MMA_D_4(c, 4)
#define SY_MMA_D_12(c) SY_MMA_D_8(c), SY_MMA_D_4(c, 8)
#define SY_MMA_D_16(c) SY_MMA_D_12(c), SY_MMA_D_4(c, 12)
#define SY_MMA_D_24(c) SY_MMA_D_16(c), SY_MMA_D_4(c, 16), SY_MMA_D_4(c, 20)
#define SY_MMA_D_32(c) SY_MMA_D_24(c), SY_MMA_D_4(c, 24), SY_MMA_D_4(c, 28)

#define SY_MMA(columns, type, shape, types, sum, tail, count, a, b, p)                       \
  template <>                                                                                \
  struct Mma<columns, type> {                                                                \
    static __device__ __forceinline__ void Step(MmaSum<type> (&d)[count], std::uint64_t lhs, \
                                                std::uint64_t rhs, int accumulate) {         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p                                        \
                   ", 0;\n"                                                                  \
                   "wgmma.mma_async.sync.aligned." shape types " {" SY_MMA_REGS_##count      \
                   "}, " a ", " b ", p" tail ";}\n"                                          \
                   : SY_MMA_D_##count(sum)                                                   \
                   : "l"(lhs), "l"(rhs), "r"(accumulate));                                   \
    }                                                                                        \
  };
#define SY_MMA_ALL(columns, count, a, b, p)                                                       \
  SY_MMA(columns, MmaType::kE4m3, "m64n" #columns "k32", ".f32.e4m3.e4m3", "+f", ", 1, 1", count, \
         a, b, p)                                                                                 \
  SY_MMA(columns, MmaType::kBf16, "m64n" #columns "k16", ".f32.bf16.bf16", "+f", ", 1, 1, 0, 0",  \
         count, a, b, p)                                                                          \
  SY_MMA(columns, MmaType::kInt8, "m64n" #columns "k32", ".s32.s8.s8", "+r", "", count, a, b, p)

SY_MMA_ALL(16, 8, "%8", "%9", "%10")
SY_MMA_ALL(24, 12, "%12", "%13", "%14")
SY_MMA_ALL(32, 16, "%16", "%17", "%18")
SY_MMA_ALL(48, 24, "%24", "%25", "%26")
SY_MMA_ALL(64, 32, "%32", "%33", "%34")

// A step with the weights in registers. BF16: a[0] is row l / 4, values 2 (l % 4) and the next of
// 16, a[1] the row 8 below, a[2] and a[3] the values 8 behind. E4M3: likewise four values from
// 4 (l % 4) on of 32, and 16 behind.
template <int kColumns, MmaType kType>
struct MmaOfRegisters;

#define SY_MMA_OF_REGISTERS(columns, type, types, tail, count, a0, a1, a2, a3, b, p)            \
  template <>                                                                                   \
  struct MmaOfRegisters<columns, type> {                                                        \
    static __device__ __forceinline__ void Step(float (&d)[count], const std::uint32_t (&a)[4], \
                                                std::uint64_t rhs, int accumulate) {            \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p                                           \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #columns types " {" SY_MMA_REGS_##count  \
                   "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1" tail ";}\n"            \
                   : SY_MMA_D_##count("+f")                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rhs), "r"(accumulate));    \
    }                                                                                           \
  };

#define SY_MMA_OF_REGISTERS_ALL(columns, count, ...)                                           \
  SY_MMA_OF_REGISTERS(columns, MmaType::kBf16, "k16.f32.bf16.bf16", ", 0", count, __VA_ARGS__) \
  SY_MMA_OF_REGISTERS(columns, MmaType::kE4m3, "k32.f32.e4m3.e4m3", "", count, __VA_ARGS__)

SY_MMA_OF_REGISTERS_ALL(24, 12, "%12", "%13", "%14", "%15", "%16", "%17")
SY_MMA_OF_REGISTERS_ALL(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")

#undef SY_MMA_OF_REGISTERS_ALL
#undef SY_MMA_OF_REGISTERS
#undef SY_MMA_ALL
#undef SY_MMA
#undef SY_MMA_REGS_4
#undef SY_MMA_D_4
#undef SY_MMA_REGS_8
#undef SY_MMA_D_8
#undef SY_MMA_REGS_12
#undef SY_MMA_D_12
#undef SY_MMA_REGS_16
#undef SY_MMA_D_16
#undef SY_MMA_REGS_24
#undef SY_MMA_D_24
#undef SY_MMA_REGS_32
#undef SY_MMA_D_32

}  // namespace switchyard::cuda
