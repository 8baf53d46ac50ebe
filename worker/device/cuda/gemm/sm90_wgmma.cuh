// Warpgroup matrix products D += A x B^T of Hopper, both operands in shared memory, K-major, in
// rows of 128 bytes with the 128-byte swizzle that the copy engine writes.
//
// Accumulators of thread t (lane l = t % 32, warp w = t / 32 of the warpgroup): d[4 * j + i] is row
// 16 * w + l / 4 + 8 * (i / 2), column 8 * j + 2 * (l % 4) + i % 2.
//
//   WgmmaFence(); <products>; WgmmaCommit(); ... WgmmaWait<0>(); WgmmaPin(d); <read d>
#pragma once

#include <cstdint>

namespace switchyard::cuda::sm90 {

// Every warp of a warpgroup calls one of these: registers go from one warpgroup to another.
template <int Registers>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Orders accesses to registers and shared memory before the first product that uses them.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Returns once at most `Pending` committed groups are unfinished.
template <int Pending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps reads of accumulators behind the wait before it.
template <int Count>
__device__ __forceinline__ void WgmmaPin(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int Count>
__device__ __forceinline__ void WgmmaPin(std::int32_t (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// The operand at `shared` (1024-aligned): rows of 128 bytes, eight of them an atom of 1024 bytes.
// A step of 32 bytes along K adds 2.
__device__ __forceinline__ std::uint64_t OperandDescriptor(std::uint32_t shared) {
  constexpr std::uint64_t kAtomBytes = 1024;
  constexpr std::uint64_t kSwizzle128 = 1;
  return static_cast<std::uint64_t>((shared & 0x3ffff) >> 4) | (std::uint64_t{1} << 16) |
         ((kAtomBytes >> 4) << 32) | (kSwizzle128 << 62);
}

#define SY_ACCUMULATORS_8(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define SY_ACCUMULATORS_32(c, d, i)                                                            \
  SY_ACCUMULATORS_8(c, d, i), SY_ACCUMULATORS_8(c, d, i + 8), SY_ACCUMULATORS_8(c, d, i + 16), \
      SY_ACCUMULATORS_8(c, d, i + 24)
#define SY_ACCUMULATORS_128(c, d)                                                          \
  SY_ACCUMULATORS_32(c, d, 0), SY_ACCUMULATORS_32(c, d, 32), SY_ACCUMULATORS_32(c, d, 64), \
      SY_ACCUMULATORS_32(c, d, 96)
#define SY_REGISTERS_0_31                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "           \
  "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define SY_REGISTERS_0_63                                        \
  SY_REGISTERS_0_31                                              \
  ", "                                                           \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define SY_REGISTERS_64_127                                                  \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, "             \
  "%76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, "             \
  "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "             \
  "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"

// 64 rows x 128 columns x 32 values of K, E4M3. `add` 0 overwrites d.
__device__ __forceinline__ void WgmmaE4m3(float (&d)[64], std::uint64_t a, std::uint64_t b,
                                          int add) {
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" SY_REGISTERS_0_63
      "}, %64, %65, p, 1, 1;}"
      : SY_ACCUMULATORS_32("+f", d, 0), SY_ACCUMULATORS_32("+f", d, 32)
      : "l"(a), "l"(b), "r"(add));
}

// 64 rows x 256 columns x 16 values of K, BF16. `add` 0 overwrites d.
__device__ __forceinline__ void WgmmaBf16(float (&d)[128], std::uint64_t a, std::uint64_t b,
                                          int add) {
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SY_REGISTERS_0_63
      ", " SY_REGISTERS_64_127 "}, %128, %129, p, 1, 1, 0, 0;}"
      : SY_ACCUMULATORS_128("+f", d)
      : "l"(a), "l"(b), "r"(add));
}

// 64 rows x 256 columns x 32 values of K, INT8. `add` 0 overwrites d.
__device__ __forceinline__ void WgmmaInt8(std::int32_t (&d)[128], std::uint64_t a, std::uint64_t b,
                                          int add) {
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" SY_REGISTERS_0_63
      ", " SY_REGISTERS_64_127 "}, %128, %129, p;}"
      : SY_ACCUMULATORS_128("+r", d)
      : "l"(a), "l"(b), "r"(add));
}

#undef SY_ACCUMULATORS_8
#undef SY_ACCUMULATORS_32
#undef SY_ACCUMULATORS_128
#undef SY_REGISTERS_0_63
#undef SY_REGISTERS_0_31
#undef SY_REGISTERS_64_127

}  // namespace switchyard::cuda::sm90
