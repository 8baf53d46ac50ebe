#include "worker/device/cpu/kernel/row_ops.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard {
namespace {

using testing::GaussianBf16;
using testing::GaussianFloats;

constexpr std::uint64_t kSeed = 31;

// Bit for bit, but that any NaN equals any NaN.
template <typename T>
bool Same(T got, T want) {
  if constexpr (std::is_same_v<T, float>) {
    if (std::isnan(want)) return std::isnan(got);
    return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want);
  } else {
    if (std::isnan(Bf16ToFloat(want))) return std::isnan(Bf16ToFloat(got));
    return got == want;
  }
}

template <typename T>
void ExpectSame(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(Same(got[i], want[i]))
        << "element " << i << " of " << got.size() << ": " << got[i] << ", not " << want[i];
  }
}

struct Named {
  const char* name;
  const RowKernels* kernels;
};

class RowOpsTest : public ::testing::TestWithParam<Named> {
 protected:
  const CpuRowOps ops_{*GetParam().kernels};
};

constexpr std::int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 100, 2048};
constexpr std::size_t kTerms[] = {0, 1, 2, 3, 8, 9};

// Values that rounding, signs and overflow are sensitive to.
std::vector<float> Awkward() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0F, -0.0F,   1.0F,     -1.0F,  kInf,    -kInf,          NAN,
                               -NAN, 3.4e38F, -3.4e38F, 1e-40F, -1e-40F, 1.1754944e-38F, 1e-45F};
  for (std::uint32_t low = 0; low < 0x20000; low += 0x1fff) {
    values.push_back(std::bit_cast<float>(0x3f800000U + low));
    values.push_back(std::bit_cast<float>(0xff7e0000U + low));
  }
  for (const std::uint32_t bits : {0x3f808000U, 0x3f818000U, 0x3f807fffU, 0x7f7f8000U, 0x7f800001U,
                                   0x7fbfffffU, 0xffffffffU, 0x00008000U, 0x00018000U}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

TEST_P(RowOpsTest, WeightedSumIsAChainOfFusedMultiplyAddsRoundedOnce) {
  SeededRng rng(kSeed);
  for (const std::int64_t hidden : kSizes) {
    for (const std::size_t terms : kTerms) {
      const auto size = static_cast<std::size_t>(hidden);
      const std::vector<float> data = GaussianFloats(terms * (size + 1), 1.0, rng);
      const std::vector<float> weights = GaussianFloats(terms, 0.5, rng);
      std::vector<const float*> rows;
      std::vector<Bf16> want;
      for (std::size_t t = 0; t < terms; ++t) rows.push_back(data.data() + t * (size + 1));
      for (std::size_t i = 0; i < size; ++i) {
        float sum = 0;
        for (std::size_t t = 0; t < terms; ++t) sum = std::fma(weights[t], rows[t][i], sum);
        want.push_back(FloatToBf16(sum));
      }
      std::vector<Bf16> got(size, 0x7fff);

      ops_.WeightedSum(rows, weights, hidden, got.data());

      ExpectSame(got, want);
    }
  }
}

TEST_P(RowOpsTest, WeightedSumBf16IsTheSameChainUnrounded) {
  SeededRng rng(kSeed);
  for (const std::int64_t hidden : kSizes) {
    for (const std::size_t terms : kTerms) {
      const auto size = static_cast<std::size_t>(hidden);
      const std::vector<Bf16> data = GaussianBf16(terms * (size + 1), 1.0, rng);
      const std::vector<float> weights = GaussianFloats(terms, 0.5, rng);
      std::vector<const Bf16*> rows;
      std::vector<float> want;
      for (std::size_t t = 0; t < terms; ++t) rows.push_back(data.data() + t * (size + 1));
      for (std::size_t i = 0; i < size; ++i) {
        float sum = 0;
        for (std::size_t t = 0; t < terms; ++t) {
          sum = std::fma(weights[t], Bf16ToFloat(rows[t][i]), sum);
        }
        want.push_back(sum);
      }
      std::vector<float> got(size, NAN);

      ops_.WeightedSumBf16(rows, weights, hidden, got.data());

      ExpectSame(got, want);
    }
  }
}

TEST_P(RowOpsTest, SumBf16AddsFromTheFirstRowOn) {
  SeededRng rng(kSeed);
  for (const std::int64_t hidden : kSizes) {
    for (const std::size_t terms : kTerms) {
      const auto size = static_cast<std::size_t>(hidden);
      const std::vector<Bf16> data = GaussianBf16(terms * (size + 1), 1.0, rng);
      std::vector<const Bf16*> rows;
      std::vector<float> want;
      for (std::size_t t = 0; t < terms; ++t) rows.push_back(data.data() + t * (size + 1));
      for (std::size_t i = 0; i < size; ++i) {
        float sum = terms > 0 ? Bf16ToFloat(rows[0][i]) : 0.0F;
        for (std::size_t t = 1; t < terms; ++t) sum += Bf16ToFloat(rows[t][i]);
        want.push_back(sum);
      }
      std::vector<float> got(size, NAN);

      ops_.SumBf16(rows, hidden, got.data());

      ExpectSame(got, want);
    }
  }
}

TEST_P(RowOpsTest, OrderOfTermsIsTheOrderGiven) {
  // 1e8 swallows 1 when added first; only one order gives 1.
  const std::vector<float> big(40, 1e8F);
  const std::vector<float> minus(40, -1e8F);
  const std::vector<float> one(40, 1.0F);
  const std::vector<float> weights(3, 1.0F);
  std::vector<Bf16> kept(40);
  std::vector<Bf16> lost(40);

  ops_.WeightedSum(std::vector<const float*>{big.data(), minus.data(), one.data()}, weights, 40,
                   kept.data());
  ops_.WeightedSum(std::vector<const float*>{one.data(), big.data(), minus.data()}, weights, 40,
                   lost.data());

  EXPECT_EQ(kept, std::vector<Bf16>(40, FloatToBf16(1.0F)));
  EXPECT_EQ(lost, std::vector<Bf16>(40, FloatToBf16(0.0F)));
}

TEST_P(RowOpsTest, MinusZeroSurvivesASumOfOneRowButNotAFusedChain) {
  const std::vector<Bf16> row(33, FloatToBf16(-0.0F));
  const std::vector<const Bf16*> rows = {row.data()};
  std::vector<float> sum(33, NAN);
  std::vector<float> weighted(33, NAN);

  ops_.SumBf16(rows, 33, sum.data());
  ops_.WeightedSumBf16(rows, std::vector<float>{1.0F}, 33, weighted.data());

  ExpectSame(sum, std::vector<float>(33, -0.0F));
  ExpectSame(weighted, std::vector<float>(33, 0.0F));
}

TEST_P(RowOpsTest, RoundToBf16IsToNearestEvenForAwkwardValues) {
  const std::vector<float> in = Awkward();
  std::vector<Bf16> want(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) want[i] = FloatToBf16(in[i]);
  std::vector<Bf16> got(in.size(), 0x1234);

  ops_.RoundToBf16(in.data(), static_cast<std::int64_t>(in.size()), got.data());

  ExpectSame(got, want);
}

TEST_P(RowOpsTest, AwkwardValuesStayInTheirElement) {
  std::vector<float> in = Awkward();
  const auto size = static_cast<std::int64_t>(in.size());
  const std::vector<const float*> rows = {in.data(), in.data()};
  const std::vector<float> weights = {0.75F, -0.25F};
  std::vector<Bf16> want(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    want[i] = FloatToBf16(std::fma(-0.25F, in[i], std::fma(0.75F, in[i], 0.0F)));
  }
  std::vector<Bf16> got(in.size(), 0x1234);

  ops_.WeightedSum(rows, weights, size, got.data());

  ExpectSame(got, want);
}

std::vector<Named> UsableRowKernels() {
  std::vector<Named> all = {{"portable", &kPortableRowKernels}};
  const CpuFeatures cpu = DetectCpuFeatures();
  const RowKernels& avx2 = ChooseRowKernels({.avx2 = cpu.avx2});
  const RowKernels& chosen = ChooseRowKernels(cpu);
  if (&avx2 != &kPortableRowKernels) all.push_back({"avx2", &avx2});
  if (&chosen != &avx2) all.push_back({"chosen", &chosen});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowOpsTest, ::testing::ValuesIn(UsableRowKernels()),
                         [](const ::testing::TestParamInfo<Named>& row_kernels) {
                           return row_kernels.param.name;
                         });

}  // namespace
}  // namespace switchyard
