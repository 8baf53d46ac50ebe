// Grouped products against a slow reference in FP64, which a test holds against the CPU's
// arithmetic. Outputs are NaN before each run, so that what is not written shows; bytes beside rows
// must stay.
#include "worker/device/cuda/decode/grouped_gemm.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "core/format/fp8.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/routing.h"

namespace switchyard::cuda {
namespace {

using testing::Check;
using testing::DeviceBuffer;
using testing::IndexRouting;
using testing::LandedRows;
using testing::RandomWeights;
using testing::RowError;

constexpr int kSourceRows = 300;
constexpr double kBf16Bound = 4e-3;    // one rounding to 8 bits
constexpr double kHiddenBound = 4e-2;  // E4M3: 3 bits and a half
constexpr std::int64_t kPadding = 32;  // bytes between rows of the output

struct Case {
  const char* name;
  WeightType type;
  WeightOrder order;
  int row_tile;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
const Case kCases[] = {
    {"fp8_128_24", WeightType::kFp8, WeightOrder::kRows128, 24},
    {"fp8_128_32", WeightType::kFp8, WeightOrder::kRows128, 32},
    {"fp8_128_64", WeightType::kFp8, WeightOrder::kRows128, 64},
    {"fp8_256_24", WeightType::kFp8, WeightOrder::kRows256, 24},
    {"fp8_256_32", WeightType::kFp8, WeightOrder::kRows256, 32},
    {"fp8_256_64", WeightType::kFp8, WeightOrder::kRows256, 64},
    {"bf16_128_24", WeightType::kBf16, WeightOrder::kRows128, 24},
    {"bf16_128_32", WeightType::kBf16, WeightOrder::kRows128, 32},
    {"bf16_128_64", WeightType::kBf16, WeightOrder::kRows128, 64},
    {"bf16_256_24", WeightType::kBf16, WeightOrder::kRows256, 24},
    {"bf16_256_32", WeightType::kBf16, WeightOrder::kRows256, 32},
    {"bf16_256_64", WeightType::kBf16, WeightOrder::kRows256, 64},
};

// A product's output with poisoned bytes beside its rows.
class Output {
 public:
  Output(std::int64_t slots, std::int64_t row_bytes)
      : slots_(slots), row_bytes_(row_bytes), stride_(row_bytes + kPadding) {
    buffer_ = DeviceBuffer<std::byte>((slots + 2) * stride_);
    Poison();
  }
  void Poison() { buffer_.Fill(0xff); }
  [[nodiscard]] GemmOutput view() const { return {buffer_.get() + stride_, stride_, 0}; }
  [[nodiscard]] std::vector<std::byte> Bytes() const { return buffer_.ToHost(); }

  // Bytes that no row of a group owns and that changed.
  [[nodiscard]] std::int64_t TouchedBeside() const {
    const std::vector<std::byte> bytes = buffer_.ToHost();
    std::int64_t touched = 0;
    for (std::int64_t i = 0; i < buffer_.count(); i++) {
      const std::int64_t slot = i / stride_ - 1;
      const bool inside = slot >= 0 && slot < slots_ && i % stride_ < row_bytes_;
      if (!inside && bytes[static_cast<std::size_t>(i)] != std::byte{0xff}) touched++;
    }
    return touched;
  }

 private:
  std::int64_t slots_;
  std::int64_t row_bytes_;
  std::int64_t stride_;
  DeviceBuffer<std::byte> buffer_;
};

double WorstRow(const std::vector<RowError>& errors) {
  double worst = 0;
  for (const RowError& row : errors) {
    if (row.error == 0 && row.reference == 0) continue;  // a slot of no group
    const double relative = std::sqrt(row.error / row.reference);
    if (!(relative <= worst)) worst = relative;  // NaN sticks
  }
  return worst;
}

double Error(const GemmOutput& out, const GemmRows& rows, const GemmGroups& groups,
             std::int64_t slots, const testing::PlainWeights& weights) {
  const DeviceBuffer<double> reference(slots * weights.n);
  const DeviceBuffer<RowError> errors(slots);
  testing::ReferenceGemm(rows, groups, slots, weights, reference.get(), nullptr);
  testing::CompareRows(out, reference.get(), groups, slots, weights.n, errors.get(), nullptr);
  Check(cudaDeviceSynchronize(), "reference");
  return WorstRow(errors.ToHost());
}

class GroupedGemmTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
  [[nodiscard]] testing::WeightSpec Spec(int groups, std::int64_t n, std::int64_t k) const {
    return {groups, n, k, GetParam().type, GetParam().order};
  }
  [[nodiscard]] GemmPlan Plan() const { return {GetParam().row_tile, 3, 4, 0}; }
};

TEST_P(GroupedGemmTest, MultipliesIndexedRowsOfAnyCount) {
  const std::vector<std::vector<std::int32_t>> routings = {
      {1},           {7},
      {0, 0, 3, 0},  {24, 25, 1, 0, 33, 64, 65, 2},
      {300, 0, 129}, {20, 17, 23, 11, 30, 5}};
  for (const auto& [n, k] : {std::pair{256, 128}, {768, 768}, {512, 4352}}) {
    for (const std::vector<std::int32_t>& counts : routings) {
      const RandomWeights weights(Spec(static_cast<int>(counts.size()), n, k), 5);
      const LandedRows rows(GetParam().type, kSourceRows, k, 9);
      const IndexRouting routing(counts, kSourceRows, 3);
      const Output out(routing.slots(), n * 2);

      ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(),
                            out.view(), Plan(), false, nullptr),
                cudaSuccess);

      EXPECT_LT(Error(out.view(), rows.rows(routing.rows()), routing.groups(), routing.slots(),
                      weights.plain()),
                kBf16Bound)
          << "n " << n << " k " << k << " groups " << counts.size();
      EXPECT_EQ(out.TouchedBeside(), 0);
    }
  }
}

TEST_P(GroupedGemmTest, MultipliesMaskedRows) {
  constexpr int kSlots = 40;
  const std::vector<std::int32_t> counts = {3, 0, 40, 99, 17};  // 99 is cut to 40
  const RandomWeights weights(Spec(5, 512, 1024), 15);
  const LandedRows rows(GetParam().type, 5 * kSlots, 1024, 19);
  const DeviceBuffer<std::int32_t> device_counts(counts);
  const GemmGroups groups = {device_counts.get(), nullptr, kSlots, 5};
  const Output out(5 * kSlots, 512 * 2);

  ASSERT_EQ(
      GroupedGemm(rows.rows(nullptr), groups, weights.packed(), out.view(), Plan(), false, nullptr),
      cudaSuccess);

  EXPECT_LT(Error(out.view(), rows.rows(nullptr), groups, 5 * kSlots, weights.plain()), kBf16Bound);
  const std::vector<std::byte> bytes = out.Bytes();
  const auto stride = static_cast<std::size_t>(out.view().stride);
  for (std::size_t i = stride * (1 + 3); i < stride * (1 + kSlots); i++) {
    ASSERT_EQ(bytes[i], std::byte{0xff}) << "a row beyond its group's count";
  }
}

TEST_P(GroupedGemmTest, KeepsNanInItsRow) {
  const std::vector<std::int32_t> counts = {9, 31};
  const RandomWeights weights(Spec(2, 256, 512), 25);
  LandedRows rows(GetParam().type, kSourceRows, 512, 29);
  const IndexRouting routing(counts, kSourceRows, 4);
  const std::int64_t poisoned = routing.host_rows()[4];
  rows.PoisonRow(poisoned);
  const Output out(routing.slots(), 256 * 2);

  ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(), out.view(),
                        Plan(), false, nullptr),
            cudaSuccess);

  const std::vector<std::byte> bytes = out.Bytes();
  for (std::int64_t slot = 0; slot < routing.slots(); slot++) {
    const bool is_nan = routing.host_rows()[static_cast<std::size_t>(slot)] == poisoned;
    for (std::int64_t n = 0; n < 256; n++) {
      std::uint16_t value = 0;
      std::memcpy(&value, bytes.data() + (slot + 1) * out.view().stride + n * 2, 2);
      ASSERT_EQ(std::isnan(Bf16ToFloat(value)), is_nan) << "slot " << slot << " column " << n;
    }
  }
}

// The sums before rounding, of groups that lie where a table says.
TEST_P(GroupedGemmTest, GivesSumsThatRoundToItsPlainOutput) {
  if (GetParam().order != WeightOrder::kRows128) GTEST_SKIP() << "sums are of tiles of 128 rows";
  const std::vector<std::int32_t> counts = {20, 0, 70, 1, 25};
  constexpr std::int64_t kN = 384;
  constexpr std::int64_t kK = 1024;
  const RandomWeights weights(Spec(5, kN, kK), 45);
  const LandedRows rows(GetParam().type, kSourceRows, kK, 49);
  const IndexRouting routing(counts, kSourceRows, 6);
  const Output plain(routing.slots(), kN * 2);
  const Output sums(routing.slots(), kN * 4);
  PackedWeights by_group = weights.packed();
  std::vector<const std::byte*> of_group;
  std::vector<const float*> scales_of_group;
  for (std::int64_t g = 0; g < 5; g++) {
    of_group.push_back(by_group.data + g * kN * RowBytesOf(by_group.type, kK));
    scales_of_group.push_back(by_group.scales + g * (kN / 128) * (kK / 128));
  }
  const DeviceBuffer<const std::byte*> device_of_group(of_group);
  const DeviceBuffer<const float*> device_scales(scales_of_group);
  by_group.data = nullptr;
  by_group.scales = nullptr;
  by_group.of_group = device_of_group.get();
  by_group.scales_of_group = device_scales.get();
  GemmOutput fp32 = sums.view();
  fp32.fp32 = true;

  ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(), plain.view(),
                        Plan(), false, nullptr),
            cudaSuccess);
  ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), by_group, fp32, Plan(), false,
                        nullptr),
            cudaSuccess);

  const std::vector<std::byte> want = plain.Bytes();
  const std::vector<std::byte> got = sums.Bytes();
  for (std::int64_t slot = 0; slot < routing.slots(); slot++) {
    for (std::int64_t n = 0; n < kN; n++) {
      float sum = 0;
      std::uint16_t rounded = 0;
      std::memcpy(&sum, got.data() + (slot + 1) * fp32.stride + n * 4, 4);
      std::memcpy(&rounded, want.data() + (slot + 1) * plain.view().stride + n * 2, 2);
      if (std::isnan(sum) && std::isnan(Bf16ToFloat(rounded))) continue;  // a slot of no group
      ASSERT_EQ(FloatToBf16(sum), rounded) << "slot " << slot << " column " << n;
    }
  }
  EXPECT_EQ(sums.TouchedBeside(), 0);
}

// Plans, dependent launches and earlier contents of shared memory change no bit.
TEST_P(GroupedGemmTest, GivesTheSameBytesForEveryPlan) {
  const std::vector<std::int32_t> counts = {20, 0, 0, 25, 14, 70, 0, 1, 19};
  const RandomWeights weights(Spec(9, 1536, 2048), 35);
  const LandedRows rows(GetParam().type, kSourceRows, 2048, 39);
  const IndexRouting routing(counts, kSourceRows, 5);
  Output out(routing.slots(), 1536 * 2);
  std::vector<std::byte> first;
  for (GemmPlan plan : {GemmPlan{32, 1, 0, 0}, {32, 2, 9, 7}, {32, 4, 1, 1}, {32, 99, 99, 131}}) {
    plan.row_tile = GetParam().row_tile;
    for (int i = 0; i < 10; i++) {
      out.Poison();
      for (int repeat = 0; repeat < 3; repeat++) {
        ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(),
                              out.view(), plan, true, nullptr),
                  cudaSuccess);
      }
      Check(cudaDeviceSynchronize(), "run");
      if (first.empty()) first = out.Bytes();
      ASSERT_EQ(out.Bytes(), first) << "window " << plan.window << " CTAs " << plan.ctas;
    }
  }
}

TEST_P(GroupedGemmTest, WritesNothingWithoutRows) {
  const RandomWeights weights(Spec(4, 256, 256), 45);
  const LandedRows rows(GetParam().type, 4, 256, 49);
  const IndexRouting routing({0, 0, 0, 0}, 4, 6);
  const Output out(4, 512);

  ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(), out.view(),
                        Plan(), true, nullptr),
            cudaSuccess);
  Check(cudaDeviceSynchronize(), "run");

  for (const std::byte byte : out.Bytes()) ASSERT_EQ(byte, std::byte{0xff});
}

INSTANTIATE_TEST_SUITE_P(Instances, GroupedGemmTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

class SwigluGemmTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

// The hidden rows, decoded, against silu(gate) * up of the reference.
TEST_P(SwigluGemmTest, WritesHiddenRowsReadyForTheNextProduct) {
  constexpr std::int64_t kIntermediate = 384;
  constexpr std::int64_t kHidden = 1024;
  constexpr std::int64_t kStride = kIntermediate + kIntermediate / 128 * 4 + 4;  // 400
  const RandomWeights weights(
      {4, 2 * kIntermediate, kHidden, WeightType::kFp8, WeightOrder::kGateUp256}, 55);
  const LandedRows rows(WeightType::kFp8, kSourceRows, kHidden, 59);
  const IndexRouting routing({5, 0, 49, 24}, kSourceRows, 7);
  DeviceBuffer<std::byte> out(routing.slots() * kStride);
  out.Fill(0xff);
  const GemmOutput view = {out.get(), kStride, kIntermediate};
  ASSERT_EQ(GroupedGemm(rows.rows(routing.rows()), routing.groups(), weights.packed(), view,
                        {GetParam(), 3, 4, 0}, false, nullptr),
            cudaSuccess);

  const DeviceBuffer<double> gated(routing.slots() * 2 * kIntermediate);
  testing::ReferenceGemm(rows.rows(routing.rows()), routing.groups(), routing.slots(),
                         weights.plain(), gated.get(), nullptr);
  const std::vector<double> wanted = gated.ToHost();
  const std::vector<std::byte> bytes = out.ToHost();
  for (std::int64_t slot = 0; slot < routing.slots(); slot++) {
    const std::byte* row = bytes.data() + slot * kStride;
    const double* sums = wanted.data() + slot * 2 * kIntermediate;
    double error = 0;
    double norm = 0;
    for (std::int64_t i = 0; i < kIntermediate; i++) {
      float scale = 0;
      std::memcpy(&scale, row + kIntermediate + i / 128 * 4, 4);
      const double got = E4m3ToFloat(static_cast<Fp8E4m3>(row[i])) * static_cast<double>(scale);
      const double value = sums[i] / (1 + std::exp(-sums[i])) * sums[kIntermediate + i];
      error += (got - value) * (got - value);
      norm += value * value;
    }
    ASSERT_LT(std::sqrt(error / norm), kHiddenBound) << "slot " << slot;
  }
}

INSTANTIATE_TEST_SUITE_P(RowTiles, SwigluGemmTest, ::testing::Values(24, 32, 64));

TEST(ReferenceGemmTest, AgreesWithTheCpu) {
  if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  constexpr std::int64_t kN = 128;
  constexpr std::int64_t kK = 256;
  const RandomWeights weights({2, kN, kK, WeightType::kFp8, WeightOrder::kRows128}, 65);
  const LandedRows rows(WeightType::kFp8, 8, kK, 69);
  const IndexRouting routing({3, 2}, 8, 8);
  const DeviceBuffer<double> out(routing.slots() * kN);
  testing::ReferenceGemm(rows.rows(routing.rows()), routing.groups(), routing.slots(),
                         weights.plain(), out.get(), nullptr);
  const std::vector<double> got = out.ToHost();

  const testing::PlainWeights plain = weights.plain();
  std::vector<std::byte> codes(static_cast<std::size_t>(2 * kN * kK));
  std::vector<float> scales(static_cast<std::size_t>(2 * kK / 128));
  Check(cudaMemcpy(codes.data(), plain.data, codes.size(), cudaMemcpyDeviceToHost), "codes");
  Check(cudaMemcpy(scales.data(), plain.scales, scales.size() * 4, cudaMemcpyDeviceToHost),
        "scales");
  const GemmRows source = rows.rows(nullptr);
  std::vector<std::byte> landed(static_cast<std::size_t>(8 * source.stride));
  Check(cudaMemcpy(landed.data(), source.rows, landed.size(), cudaMemcpyDeviceToHost), "rows");
  for (std::int64_t slot = 0; slot < routing.slots(); slot++) {
    const int group = slot < 3 ? 0 : 1;
    const std::byte* row =
        landed.data() + routing.host_rows()[static_cast<std::size_t>(slot)] * source.stride;
    for (std::int64_t n = 0; n < kN; n++) {
      double sum = 0;
      for (std::int64_t k = 0; k < kK; k++) {
        float scale = 0;
        std::memcpy(&scale, row + kK + k / 128 * 4, 4);
        const auto code =
            static_cast<Fp8E4m3>(codes[static_cast<std::size_t>((group * kN + n) * kK + k)]);
        sum += static_cast<double>(E4m3ToFloat(static_cast<Fp8E4m3>(row[k]))) * scale *
               (static_cast<double>(E4m3ToFloat(code)) *
                scales[static_cast<std::size_t>(group * kK / 128 + k / 128)]);
      }
      ASSERT_NEAR(got[static_cast<std::size_t>(slot * kN + n)], sum, 1e-9) << slot << " " << n;
    }
  }
}

// Needs no device: refusals come before the launch.
TEST(GroupedGemmArgumentsTest, RefusesWhatNoKernelHas) {
  alignas(256) std::byte bytes[512];
  std::int32_t counts[2] = {1, 1};
  float scales[4] = {};
  const GemmRows rows = {bytes, 1024, 512, nullptr};
  const GemmGroups groups = {counts, nullptr, 8, 2};
  const PackedWeights weights = {bytes, scales, 256, 512, WeightType::kFp8, WeightOrder::kRows128};
  const GemmOutput out = {bytes, 512, 0};
  const auto run = [&](const GemmRows& r, const GemmGroups& g, const PackedWeights& w,
                       const GemmOutput& o, const GemmPlan& plan) {
    return GroupedGemm(r, g, w, o, plan, false, nullptr);
  };
  const GemmPlan plan = {32, 4, 4, 1};
  const auto with = [](auto value, auto change) {
    change(value);
    return value;
  };

  EXPECT_EQ(run(with(rows, [](GemmRows& r) { r.stride = 504; }), groups, weights, out, plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(with(rows, [](GemmRows& r) { r.rows++; }), groups, weights, out, plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, with(groups, [](GemmGroups& g) { g.groups = 1025; }), weights, out, plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, with(weights, [](PackedWeights& w) { w.k = 500; }), out, plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, with(weights, [](PackedWeights& w) { w.n = 192; }), out, plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, weights, with(out, [](GemmOutput& o) { o.stride = 496; }), plan),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, weights, out, {16, 4, 4, 1}), cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, weights, out, {32, 0, 4, 1}), cudaErrorInvalidValue);
  const std::int64_t carried = CarryBytesOf(WeightOrder::kRows128, 32, 1);
  EXPECT_EQ(run(rows, groups, weights, out, {32, 4, 4, 1, {bytes, carried - 1}}),
            cudaErrorInvalidValue);
  EXPECT_EQ(run(rows, groups, weights, out, {32, 4, 4, 1, {bytes + 128, carried}}),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace switchyard::cuda
