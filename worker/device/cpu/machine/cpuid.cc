#include "worker/device/cpu/machine/cpuid.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>
#endif

namespace switchyard {
namespace {

constexpr std::uint32_t kOsXsave = 1U << 27;  // leaf 1 ECX
constexpr std::uint32_t kFma = 1U << 12;      // leaf 1 ECX
constexpr std::uint32_t kAvx2 = 1U << 5;      // leaf 7 EBX
constexpr std::uint32_t kAvx512F = 1U << 16;  // leaf 7 EBX
constexpr std::uint32_t kAvx512Dq = 1U << 17;
constexpr std::uint32_t kAvx512Bw = 1U << 30;
constexpr std::uint32_t kAvx512Vl = 1U << 31;
constexpr std::uint32_t kAmxBf16 = 1U << 22;  // leaf 7 EDX
constexpr std::uint32_t kAmxTile = 1U << 24;
constexpr std::uint32_t kAvx512Bf16 = 1U << 5;  // leaf 7, subleaf 1 EAX
constexpr std::uint64_t kYmmState = 0x6;        // SSE, AVX
constexpr std::uint64_t kZmmState = 0xe6;       // SSE, AVX, mask registers, both halves of ZMM
constexpr std::uint64_t kTileState = 0x60000;   // tile configuration and tile data

template <typename Word>
bool HasAll(Word word, Word bits) {
  return (word & bits) == bits;
}

#if defined(__x86_64__)
constexpr long kArchReqXcompPerm = 0x1023;
constexpr long kXfeatureTileData = 18;

std::uint64_t ReadXcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}
#endif

}  // namespace

CpuFeatures DecodeCpuFeatures(const CpuidWords& words) {
  CpuFeatures features;
  // The CPU may have the registers while the system does not save them at a switch of threads.
  features.avx2 = HasAll(words.leaf1_ecx, kOsXsave | kFma) && HasAll(words.xcr0, kYmmState) &&
                  HasAll(words.leaf7_ebx, kAvx2);
  features.avx512 = features.avx2 && HasAll(words.xcr0, kZmmState) &&
                    HasAll(words.leaf7_ebx, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl);
  features.amx_bf16 = features.avx512 && HasAll(words.xcr0, kTileState) &&
                      HasAll(words.leaf7_edx, kAmxTile | kAmxBf16) &&
                      HasAll(words.leaf7_1_eax, kAvx512Bf16) && words.tiles_permitted;
  return features;
}

CpuidWords ReadCpuidWords() {
  CpuidWords words;
#if defined(__x86_64__)
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_edx = edx;
  }
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  // XGETBV is an illegal instruction without this bit.
  if (HasAll(words.leaf1_ecx, kOsXsave)) words.xcr0 = ReadXcr0();
  if (HasAll(words.leaf7_edx, kAmxTile)) {
    // Linux enlarges signal frames for a process that uses tiles, so a process must request them
    // first.
    words.tiles_permitted = syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
  }
#endif
  return words;
}

CpuFeatures DetectCpuFeatures() { return DecodeCpuFeatures(ReadCpuidWords()); }

}  // namespace switchyard
