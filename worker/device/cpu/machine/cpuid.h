// The instruction sets that this CPU and its kernel let a process use: CPUID bits, the state that
// the operating system saves (XCR0) and, for AMX, the permission that Linux grants a process. Never
// the model's name.
#pragma once

#include <cstdint>

namespace switchyard {

// The facts that the choice of kernels depends on; plain data, so that tests can name machines they
// do not have.
struct CpuFeatures {
  bool avx2 = false;    // and fused multiply-add, with their registers saved by the system
  bool avx512 = false;  // F, BW, DQ and VL, likewise; implies avx2
  // Tiles and BF16 products, permitted to this process; implies avx512 and its BF16 conversions.
  bool amx_bf16 = false;

  friend bool operator==(const CpuFeatures&, const CpuFeatures&) = default;
};

// The raw words that the decision rests on.
struct CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;        // 0 when leaf 1 says that XGETBV is not to be used
  bool tiles_permitted = false;  // ARCH_REQ_XCOMP_PERM for tile data was granted
};

// Pure.
CpuFeatures DecodeCpuFeatures(const CpuidWords& words);

// Reads this machine; asks Linux for the permission to use tiles when the CPU has them (once
// granted it holds for the whole process; asking again is harmless).
CpuidWords ReadCpuidWords();
// The two above, one after the other.
CpuFeatures DetectCpuFeatures();

}  // namespace switchyard
