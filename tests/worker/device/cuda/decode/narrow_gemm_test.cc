// Products with INT4 and NVFP4 weights against a slow reference in double, over the values that the
// packed codes stand for. Outputs are NaN before each run; bytes beside rows must stay.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"
#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/narrow_weights.h"

namespace switchyard::cuda {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;

constexpr int kSourceRows = 90;
constexpr double kSumBound = 1e-5;  // FP32 sums of exact products
// The tensor cores add products of E4M3 to some 14 bits: 128 k at a time, then in FP32.
constexpr double kFp8SumBound = 1e-3;

// What a random weight of the type is made of.
float ValueOf(WeightType type, std::mt19937* random, std::int64_t k) {
  constexpr float kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto bits = (*random)();
  if (type != WeightType::kE2m1) return static_cast<float>(bits % 16) - 8.0F;
  const float scale =
      std::ldexp(8.0F + static_cast<float>(k / 16 * 3 % 8), static_cast<int>(k / 16 % 13) - 9);
  return kE2m1[bits % 8] * scale * ((bits & 8U) != 0 ? -1.0F : 1.0F);
}

struct Case {
  WeightType type;
  bool scaled;  // by scales of 128 k
};

// Experts of all groups, as values and packed.
class Experts {
 public:
  Experts(const Case& c, int groups, std::int64_t n, std::int64_t k)
      : n_(n), k_(k), type_(c.type), values_(static_cast<std::size_t>(groups * n * k)) {
    std::mt19937 random(17);
    for (std::size_t i = 0; i < values_.size(); i++) {
      values_[i] = FloatToBf16(ValueOf(c.type, &random, static_cast<std::int64_t>(i) % k));
    }
    scales_.assign(static_cast<std::size_t>(groups * n * k / 128), 1.0F);
    if (c.scaled) {
      for (float& scale : scales_) scale = 0.01F + static_cast<float>(random() % 1000) * 1e-5F;
    }
    const std::int64_t bytes = WeightBytesOf(c.type, n, k);
    packed_ = DeviceBuffer<std::byte>(groups * bytes);
    plain_ = DeviceBuffer<std::uint16_t>(values_);
    device_scales_ = DeviceBuffer<float>(scales_);
    std::vector<const std::byte*> of_group;
    for (std::int64_t g = 0; g < groups; g++) {
      const NarrowScales scales{c.scaled ? device_scales_.get() + g * n * k / 128 : nullptr, 1};
      Check(PackNarrow({plain_.get() + g * n * k, n, k}, c.type, scales, packed_.get() + g * bytes,
                       nullptr),
            "PackNarrow");
      of_group.push_back(packed_.get() + g * bytes);
    }
    of_group_ = DeviceBuffer<const std::byte*>(of_group);
    Check(cudaDeviceSynchronize(), "pack");
  }

  [[nodiscard]] PackedWeights packed() const {
    return {.n = n_, .k = k_, .type = type_, .of_group = of_group_.get()};
  }
  [[nodiscard]] NarrowSource source() const { return {plain_.get(), n_, k_}; }
  [[nodiscard]] const std::uint16_t* plain() const { return plain_.get(); }
  [[nodiscard]] double At(std::int64_t group, std::int64_t n, std::int64_t k) const {
    const std::int64_t at = (group * n_ + n) * k_ + k;
    return static_cast<double>(Bf16ToFloat(values_[static_cast<std::size_t>(at)])) *
           scales_[static_cast<std::size_t>(at / 128)];
  }

 private:
  const std::int64_t n_;
  const std::int64_t k_;
  const WeightType type_;
  std::vector<std::uint16_t> values_;
  std::vector<float> scales_;
  DeviceBuffer<std::uint16_t> plain_;
  DeviceBuffer<float> device_scales_;
  DeviceBuffer<std::byte> packed_;
  DeviceBuffer<const std::byte*> of_group_;
};

// Rows of sums with poisoned values beside them.
class Sums {
 public:
  Sums(std::int64_t slots, std::int64_t n) : slots_(slots), n_(n), buffer_(slots * (n + 4)) {
    buffer_.Fill(0xff);
  }
  [[nodiscard]] GemmOutput view() const {
    return {
        .out = reinterpret_cast<std::byte*>(buffer_.get()), .stride = (n_ + 4) * 4, .fp32 = true};
  }
  [[nodiscard]] std::vector<float> ToHost() const { return buffer_.ToHost(); }
  [[nodiscard]] std::int64_t TouchedBeside() const {
    const std::vector<float> values = buffer_.ToHost();
    std::int64_t touched = 0;
    for (std::int64_t i = 0; i < slots_ * (n_ + 4); i++) {
      if (i % (n_ + 4) >= n_ && !std::isnan(values[static_cast<std::size_t>(i)])) touched++;
    }
    return touched;
  }

 private:
  std::int64_t slots_;
  std::int64_t n_;
  DeviceBuffer<float> buffer_;
};

std::vector<float> RowsOf(const LandedRows& rows, WeightType type, std::int64_t k) {
  const GemmRows view = rows.rows(nullptr);
  std::vector<std::byte> bytes(static_cast<std::size_t>(kSourceRows * view.stride));
  Check(cudaMemcpy(bytes.data(), view.rows, bytes.size(), cudaMemcpyDeviceToHost), "rows");
  std::vector<float> values;
  for (std::int64_t i = 0; i < kSourceRows * k; i++) {
    const std::byte* const row = bytes.data() + i / k * view.stride;
    if (HasFp8Rows(type)) {
      float scale = 0;
      std::memcpy(&scale, row + view.scale_offset + i % k / 128 * 8, sizeof(scale));
      values.push_back(E4m3ToFloat(static_cast<Fp8E4m3>(row[i % k])) * scale);
      continue;
    }
    Bf16 bits = 0;
    std::memcpy(&bits, row + i % k * 2, sizeof(bits));
    values.push_back(Bf16ToFloat(bits));
  }
  return values;
}

class NarrowGemmTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(NarrowGemmTest, SumsAreThoseOfTheReferenceInRowTilesOfAnySize) {
  constexpr std::int64_t kN = 256;
  for (const std::int64_t k : {128, 640}) {
    const std::vector<std::int32_t> counts = {3, 0, 25, 70, 1};
    const Experts experts(GetParam(), 5, kN, k);
    const bool fp8 = HasFp8Rows(GetParam().type);
    const LandedRows rows(fp8 ? GetParam().type : WeightType::kBf16, kSourceRows, k, 9);
    const std::vector<float> x = RowsOf(rows, GetParam().type, k);
    const IndexRouting routing(counts, kSourceRows, 3);
    std::vector<float> first;
    for (const int row_tile : {24, 32}) {
      const Sums sums(routing.slots(), kN);
      ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), experts.packed(),
                            sums.view(), {row_tile, 3, 4, 0}, false, nullptr),
                cudaSuccess);
      Check(cudaDeviceSynchronize(), "run");
      EXPECT_EQ(sums.TouchedBeside(), 0);
      const std::vector<float> got = sums.ToHost();
      if (first.empty()) first = got;
      ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0) << row_tile;
    }
    std::int64_t slot = 0;
    for (std::size_t g = 0; g < counts.size(); g++) {
      for (std::int32_t i = 0; i < counts[g]; i++, slot++) {
        const std::int64_t row = routing.host_rows()[static_cast<std::size_t>(slot)];
        double error = 0;
        double norm = 0;
        for (std::int64_t n = 0; n < kN; n++) {
          double want = 0;
          for (std::int64_t j = 0; j < k; j++) {
            want += experts.At(static_cast<std::int64_t>(g), n, j) *
                    x[static_cast<std::size_t>(row * k + j)];
          }
          const double got = first[static_cast<std::size_t>(slot * (kN + 4) + n)];
          error += (got - want) * (got - want);
          norm += want * want;
        }
        ASSERT_LT(std::sqrt(error / norm), fp8 ? kFp8SumBound : kSumBound)
            << "slot " << slot << " k " << k;
      }
    }
  }
}

TEST_P(NarrowGemmTest, FindsTheFormsThatHoldEveryValue) {
  const Experts experts(GetParam(), 1, 256, 384);
  DeviceBuffer<NarrowMisfits> misfits(1);
  const auto find = [&](const NarrowSource& source) {
    misfits.Fill(0);
    Check(FindNarrowMisfits(source, misfits.get(), nullptr), "FindNarrowMisfits");
    return misfits.ToHost()[0];
  };
  const bool int4 = GetParam().type != WeightType::kE2m1;

  const NarrowMisfits found = find(experts.source());
  EXPECT_EQ(found.int4, int4 ? 0U : 1U);
  EXPECT_EQ(found.int4_signed, int4 ? 0U : 1U);
  EXPECT_EQ(found.e2m1, int4 ? 1U : 0U);

  // One value that has no code among those of its neighbors.
  for (const float odd : {1.0625F, 200.0F, NAN}) {
    const Bf16 bits = FloatToBf16(odd);
    Check(cudaMemcpy(const_cast<std::uint16_t*>(experts.plain()) + 4711, &bits, sizeof(bits),
                     cudaMemcpyHostToDevice),
          "one value");
    const NarrowMisfits spoiled = find(experts.source());
    EXPECT_EQ(int4 ? spoiled.int4 : spoiled.e2m1, 1U) << odd;
    EXPECT_EQ(spoiled.int4_signed, 1U) << odd;
  }
}

TEST_P(NarrowGemmTest, SixteenIntegersThatBeginElsewhereAreNotSigned) {
  std::vector<std::uint16_t> values;
  for (int i = 0; i < 128; i++) values.push_back(FloatToBf16(static_cast<float>(i % 16) - 7.0F));
  const DeviceBuffer<std::uint16_t> plain(values);
  DeviceBuffer<NarrowMisfits> misfits(1);
  misfits.Fill(0);
  Check(FindNarrowMisfits({plain.get(), 1, 128}, misfits.get(), nullptr), "FindNarrowMisfits");

  const NarrowMisfits found = misfits.ToHost()[0];

  EXPECT_EQ(found.int4, 0U);
  EXPECT_EQ(found.int4_signed, 1U);
}

// A row whose values are all alike shows what the subtraction of the raised codes loses.
TEST_P(NarrowGemmTest, EveryCodeTimesOneIsItself) {
  if (!HasFp8Rows(GetParam().type)) GTEST_SKIP() << "BF16 rows";
  constexpr std::int64_t kN = 128;
  constexpr std::int64_t kK = 128;
  // Row n has the code n % 16 - 8 at one k, zeros elsewhere.
  std::vector<std::uint16_t> values(kN * kK, 0);
  for (std::int64_t n = 0; n < kN; n++) {
    values[static_cast<std::size_t>(n * kK + n * 37 % kK)] =
        FloatToBf16(static_cast<float>(n % 16) - 8.0F);
  }
  const DeviceBuffer<std::uint16_t> plain(values);
  DeviceBuffer<std::byte> packed(WeightBytesOf(WeightType::kInt4Fp8, kN, kK));
  Check(PackNarrow({plain.get(), kN, kK}, WeightType::kInt4Fp8, {}, packed.get(), nullptr),
        "PackNarrow");
  const std::vector<const std::byte*> group = {packed.get()};
  const DeviceBuffer<const std::byte*> of_group(group);
  std::vector<std::byte> row(kK + 16, std::byte{0x38});  // ones
  const float scale_and_sum[2] = {1.0F, kK * kInt4Fp8SumUnit};
  std::memcpy(row.data() + kK, scale_and_sum, sizeof(scale_and_sum));
  const DeviceBuffer<std::byte> rows(row);
  const DeviceBuffer<std::int32_t> counts(std::vector<std::int32_t>{1});
  const Sums sums(1, kN);

  ASSERT_EQ(
      GroupedGemm({rows.get(), kK + 16, kK, nullptr}, {counts.get(), nullptr, 1, 1},
                  {.n = kN, .k = kK, .type = WeightType::kInt4Fp8, .of_group = of_group.get()},
                  sums.view(), {24, 3, 4, 0}, false, nullptr),
      cudaSuccess);
  Check(cudaDeviceSynchronize(), "run");

  const std::vector<float> got = sums.ToHost();
  for (std::int64_t n = 0; n < kN; n++) {
    EXPECT_EQ(got[static_cast<std::size_t>(n)], static_cast<float>(n % 16) - 8.0F) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowGemmTest,
                         ::testing::Values(Case{WeightType::kInt4, true},
                                           Case{WeightType::kInt4, false},
                                           Case{WeightType::kInt4Fp8, true},
                                           Case{WeightType::kInt4Fp8, false},
                                           Case{WeightType::kE2m1, false}),
                         [](const auto& test) {
                           const std::string type = test.param.type == WeightType::kE2m1 ? "E2m1"
                                                    : test.param.type == WeightType::kInt4
                                                        ? "Int4"
                                                        : "Int4Fp8";
                           return type + (test.param.scaled ? "Scaled" : "");
                         });

}  // namespace
}  // namespace switchyard::cuda
