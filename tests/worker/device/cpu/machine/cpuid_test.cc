#include "worker/device/cpu/machine/cpuid.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// A CPU with everything: OSXSAVE and FMA; AVX2, AVX-512 F, DQ, BW, VL; AMX BF16 and tiles; all
// state saved.
constexpr CpuidWords kEverything = {
    .leaf1_ecx = (1U << 12) | (1U << 27),
    .leaf7_ebx = (1U << 5) | (1U << 16) | (1U << 17) | (1U << 30) | (1U << 31),
    .leaf7_edx = (1U << 22) | (1U << 24),
    .leaf7_1_eax = 1U << 5,
    .xcr0 = 0xe6 | 0x60000,
    .tiles_permitted = true};

TEST(CpuidTest, FindsAllWhenEverythingIsThere) {
  EXPECT_EQ(DecodeCpuFeatures(kEverything),
            (CpuFeatures{.avx2 = true, .avx512 = true, .amx_bf16 = true}));
}

TEST(CpuidTest, FindsNothingInZeros) { EXPECT_EQ(DecodeCpuFeatures({}), CpuFeatures{}); }

TEST(CpuidTest, Avx512NeedsEachOfItsBitsAndAmxNeedsAvx512) {
  for (const int bit : {16, 17, 30, 31}) {
    CpuidWords words = kEverything;
    words.leaf7_ebx &= ~(1U << bit);
    EXPECT_EQ(DecodeCpuFeatures(words), CpuFeatures{.avx2 = true}) << "EBX bit " << bit;
  }
}

TEST(CpuidTest, Avx2NeedsFmaAndAllElseNeedsAvx2) {
  CpuidWords no_fma = kEverything;
  no_fma.leaf1_ecx &= ~(1U << 12);
  EXPECT_EQ(DecodeCpuFeatures(no_fma), CpuFeatures{});
  CpuidWords no_avx2 = kEverything;
  no_avx2.leaf7_ebx &= ~(1U << 5);
  EXPECT_EQ(DecodeCpuFeatures(no_avx2), CpuFeatures{});
}

TEST(CpuidTest, StateThatTheSystemDoesNotSaveIsNotUsed) {
  for (const int bit : {1, 2, 5, 6, 7}) {
    CpuidWords words = kEverything;
    words.xcr0 &= ~(std::uint64_t{1} << bit);
    EXPECT_EQ(DecodeCpuFeatures(words), CpuFeatures{.avx2 = bit > 2}) << "XCR0 bit " << bit;
  }
  CpuidWords no_xgetbv = kEverything;
  no_xgetbv.leaf1_ecx = 0;
  EXPECT_EQ(DecodeCpuFeatures(no_xgetbv), CpuFeatures{});
}

TEST(CpuidTest, AmxNeedsTilesBf16StateAndPermission) {
  const CpuFeatures avx512_only = {.avx2 = true, .avx512 = true, .amx_bf16 = false};
  for (const int bit : {22, 24}) {
    CpuidWords words = kEverything;
    words.leaf7_edx &= ~(1U << bit);
    EXPECT_EQ(DecodeCpuFeatures(words), avx512_only) << "EDX bit " << bit;
  }
  for (const int bit : {17, 18}) {
    CpuidWords words = kEverything;
    words.xcr0 &= ~(std::uint64_t{1} << bit);
    EXPECT_EQ(DecodeCpuFeatures(words), avx512_only) << "XCR0 bit " << bit;
  }
  CpuidWords no_conversions = kEverything;
  no_conversions.leaf7_1_eax = 0;
  EXPECT_EQ(DecodeCpuFeatures(no_conversions), avx512_only);
  CpuidWords refused = kEverything;
  refused.tiles_permitted = false;
  EXPECT_EQ(DecodeCpuFeatures(refused), avx512_only);
}

TEST(CpuidTest, AsksTwiceWithTheSameAnswer) { EXPECT_EQ(DetectCpuFeatures(), DetectCpuFeatures()); }

}  // namespace
}  // namespace switchyard
