// The experts in one kernel against slow kernels that do one step each: FP64 products, and hidden
// rows quantized by the plain rule.
#include "worker/device/cuda/decode/fused_ffn.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "tests/cuda/device_buffer.h"
#include "tests/cuda/device_kernels.h"
#include "tests/cuda/graph_replay.h"
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
constexpr int kHiddenGroup = 64;
// Hidden values near the middle of two codes may get the other one, since the tensor cores sum with
// fewer bits: some thousandths over all rows, and in no row more than the quantization itself.
constexpr double kPooledBound = 1.2e-2;
constexpr double kRowBound = 4e-2;

class FusedFfnTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
  [[nodiscard]] GemmPlan Plan() const { return {GetParam(), 4, 6, 0}; }
};

// Weights, workspace and output of experts of one shape.
struct Experts {
  Experts(const FfnShape& ffn_shape, int count, std::int64_t max_slots)
      : shape(ffn_shape),
        experts(count),
        slots(max_slots),
        w13({count, 2 * shape.intermediate, shape.hidden, WeightType::kFp8,
             WeightOrder::kGateUpInterleaved},
            100),
        w2({count, shape.hidden, shape.intermediate, WeightType::kFp8, WeightOrder::kRows128}, 200),
        workspace(FusedFfnWorkspaceBytes(shape, count, max_slots)),
        out(std::max<std::int64_t>(max_slots, 1) * shape.hidden) {
    workspace.Fill(0);
  }

  [[nodiscard]] FusedFfnArguments Arguments(const LandedRows& rows,
                                            const IndexRouting& routing) const {
    return {rows.rows(routing.rows()),
            routing.groups(),
            slots,
            w13.packed(),
            w2.packed(),
            {reinterpret_cast<std::byte*>(out.get()), shape.hidden * 2, 0},
            workspace.get()};
  }

  void ExpectCorrect(const LandedRows& rows, const IndexRouting& routing) const {
    const std::int64_t used = routing.slots();
    const std::int64_t stride = shape.intermediate + shape.intermediate / kHiddenGroup * 4;
    const DeviceBuffer<double> gated(used * 2 * shape.intermediate);
    const DeviceBuffer<std::byte> hidden(used * stride);
    const DeviceBuffer<double> wanted(used * shape.hidden);
    const DeviceBuffer<RowError> errors(used);
    testing::ReferenceGemm(rows.rows(routing.rows()), routing.groups(), used, w13.plain(),
                           gated.get(), nullptr);
    const testing::HiddenRows view = {hidden.get(), stride, shape.intermediate, shape.intermediate,
                                      kHiddenGroup};
    testing::ReferenceSwiglu(gated.get(), used, view, nullptr);
    testing::ReferenceSecond(view, routing.groups(), used, w2.plain(), wanted.get(), nullptr);
    testing::CompareRows(Arguments(rows, routing).out, wanted.get(), routing.groups(), used,
                         shape.hidden, errors.get(), nullptr);
    double worst = 0;
    RowError sum = {0, 0};
    for (const RowError& row : errors.ToHost()) {
      const double relative = std::sqrt(row.error / row.reference);
      if (!(relative <= worst)) worst = relative;
      sum = {sum.error + row.error, sum.reference + row.reference};
    }
    EXPECT_LT(std::sqrt(sum.error / sum.reference), kPooledBound)
        << shape.hidden << " x " << shape.intermediate << ", experts " << experts;
    EXPECT_LT(worst, kRowBound) << shape.hidden << " x " << shape.intermediate << ", experts "
                                << experts;
  }

  FfnShape shape;
  int experts;
  std::int64_t slots;
  RandomWeights w13;
  RandomWeights w2;
  DeviceBuffer<std::byte> workspace;
  DeviceBuffer<std::uint16_t> out;
};

TEST_P(FusedFfnTest, AgreesWithOneStepAtATime) {
  const std::vector<std::vector<std::int32_t>> routings = {{1},
                                                           {0, 0, 5, 0},
                                                           {20, 17, 23, 11, 30, 5, 0, 16},
                                                           {49, 0, 97, 1},
                                                           std::vector<std::int32_t>(40, 3)};
  for (const FfnShape& shape : {FfnShape{256, 128}, {2048, 768}, {1024, 512}, {4096, 1024}}) {
    const LandedRows rows(WeightType::kFp8, kSourceRows, shape.hidden, 9);
    for (const std::vector<std::int32_t>& counts : routings) {
      const IndexRouting routing(counts, kSourceRows, 3);
      Experts experts(shape, static_cast<int>(counts.size()), routing.slots());
      experts.out.Fill(0xff);

      ASSERT_EQ(FusedFfn(experts.Arguments(rows, routing), Plan(), false, nullptr), cudaSuccess);

      experts.ExpectCorrect(rows, routing);
    }
  }
}

// The counters are as before after each call, whatever the routing: 300 calls over five routings.
TEST_P(FusedFfnTest, RepeatsToTheBitUnderChangingRoutings) {
  const FfnShape shape = {2048, 768};
  const LandedRows rows(WeightType::kFp8, kSourceRows, shape.hidden, 9);
  std::vector<IndexRouting> routings;
  for (unsigned i = 0; i < 5; i++) {
    std::vector<std::int32_t> counts(16);
    for (std::size_t g = 0; g < counts.size(); g++) {
      counts[g] = static_cast<std::int32_t>((g * 7 + i * 13) % 31 * (i % 2 == 0 ? 1 : 2));
    }
    routings.emplace_back(counts, kSourceRows, 20 + i);
  }
  std::int64_t slots = 0;
  for (const IndexRouting& routing : routings) slots = std::max(slots, routing.slots());
  Experts experts(shape, 16, slots);
  std::vector<std::vector<std::uint16_t>> first(routings.size());
  for (int round = 0; round < 60; round++) {
    for (std::size_t i = 0; i < routings.size(); i++) {
      if (round % 20 == 0) experts.out.Fill(0xff);
      ASSERT_EQ(FusedFfn(experts.Arguments(rows, routings[i]), Plan(), round % 2 == 1, nullptr),
                cudaSuccess);
      if (round % 20 != 0) continue;
      const std::vector<std::uint16_t> out = experts.out.ToHost();
      if (round == 0) {
        first[i] = out;
        experts.ExpectCorrect(rows, routings[i]);
      } else {
        ASSERT_EQ(out, first[i]) << "round " << round << " routing " << i;
      }
    }
  }
  Check(cudaDeviceSynchronize(), "run");
}

TEST_P(FusedFfnTest, TenThousandReplaysGiveTheSameBytes) {
  const FfnShape shape = {2048, 768};
  const LandedRows rows(WeightType::kFp8, kSourceRows, shape.hidden, 9);
  const IndexRouting routing({20, 0, 23, 11, 30, 5, 0, 16}, kSourceRows, 3);
  Experts experts(shape, 8, routing.slots());
  std::vector<std::uint16_t> first;

  testing::ReplayLong(
      [&](cudaStream_t stream) {
        for (int i = 0; i < 2; i++) {
          Check(FusedFfn(experts.Arguments(rows, routing), Plan(), true, stream), "FusedFfn");
        }
      },
      [&] {
        if (first.empty()) first = experts.out.ToHost();
        EXPECT_EQ(experts.out.ToHost(), first);
        experts.out.Fill(0xff);
        return !HasFailure();
      });

  EXPECT_FALSE(first.empty());
}

TEST_P(FusedFfnTest, WritesNothingWithoutRows) {
  const FfnShape shape = {512, 256};
  const LandedRows rows(WeightType::kFp8, 4, shape.hidden, 9);
  const IndexRouting routing({0, 0, 0}, 4, 1);
  Experts experts(shape, 3, 8);
  experts.out.Fill(0xff);
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(FusedFfn(experts.Arguments(rows, routing), Plan(), true, nullptr), cudaSuccess);
  }
  for (const std::uint16_t value : experts.out.ToHost()) ASSERT_EQ(value, 0xffff);
}

TEST_P(FusedFfnTest, KeepsNanInItsRow) {
  const FfnShape shape = {1024, 256};
  LandedRows rows(WeightType::kFp8, kSourceRows, shape.hidden, 9);
  const IndexRouting routing({9, 40}, kSourceRows, 4);
  const std::int32_t poisoned = routing.host_rows()[4];
  rows.PoisonRow(poisoned);
  Experts experts(shape, 2, routing.slots());

  ASSERT_EQ(FusedFfn(experts.Arguments(rows, routing), Plan(), false, nullptr), cudaSuccess);

  const std::vector<std::uint16_t> out = experts.out.ToHost();
  for (std::size_t i = 0; i < out.size(); i++) {
    const auto slot = i / static_cast<std::size_t>(shape.hidden);
    ASSERT_EQ(std::isnan(Bf16ToFloat(out[i])), routing.host_rows()[slot] == poisoned) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(RowTiles, FusedFfnTest, ::testing::Values(16, 32, 48));

TEST(FusedFfnShapeTest, KnowsWhichShapesItHas) {
  EXPECT_TRUE(HasFusedFfn({2048, 768}));
  EXPECT_TRUE(HasFusedFfn({4096, 1024}));
  EXPECT_FALSE(HasFusedFfn({7168, 2048}));
  EXPECT_FALSE(HasFusedFfn({2048, 704}));
  EXPECT_FALSE(HasFusedFfn({2176, 768}));
  EXPECT_FALSE(HasFusedFfn({0, 768}));
}

}  // namespace
}  // namespace switchyard::cuda
