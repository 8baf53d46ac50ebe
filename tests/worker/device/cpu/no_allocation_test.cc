// Run, Encode and the row operations are the hot path: they must not allocate.
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/host/host_codec.h"

namespace switchyard {
namespace {

TEST(NoAllocationTest, HotPathOfTheCpuDeviceAllocatesNothing) {
  constexpr MoeShape kShape = {.hidden = 512, .intermediate = 384, .experts = 3, .top_k = 1};
  SY_ASSERT_OK_AND_ASSIGN(const auto device, CpuBackend::Create({.compute_threads = 2}));
  const testing::RandomExpert expert(kShape, 71);
  ExpertWeightsView view = expert.view();
  view.inputs = {ActivationFormat::kFp8Group};
  view.middle = {ActivationFormat::kInt4Row};
  const std::vector<float> groups(384 * 4, 0.75F);
  view.up_scales = {.tensor = 0.5F, .groups = groups};
  const std::vector<float> blocks(4 * 3, 1.5F);
  view.down_scales = {.blocks = blocks};
  SY_ASSERT_OK_AND_ASSIGN(const auto packed, device->Pack(kShape, view));
  SY_ASSERT_OK_AND_ASSIGN(const auto scratch, device->MakeScratch(kShape));
  SeededRng rng(71);
  const std::vector<Bf16> x = testing::GaussianBf16(20 * 512, 1.0, rng);
  std::vector<const Bf16*> rows;
  for (std::size_t row = 0; row < 20; ++row) rows.push_back(x.data() + row * 512);
  std::vector<float> out(3 * 20 * 512);
  std::vector<ExpertRows> batches;
  for (std::size_t b = 0; b < 3; ++b) {
    batches.push_back({.expert = packed.get(), .rows = rows, .out = out.data() + b * 20 * 512});
  }
  std::vector<std::byte> wire(20 * 1024);
  std::vector<Bf16> y(512);
  std::vector<float> weights(20, 0.5F);
  std::vector<float> sum(512);
  SY_ASSERT_OK_AND_ASSIGN(const auto codec, device->MakeCodec({.format = kBf16Format}));
  ExpertAmax amax;
  for (ExpertRows& batch : batches) batch.amax = &amax;
  const std::uint64_t before = testing::AllocationsOfThisThread();

  for (int round = 0; round < 3; ++round) {
    device->RunExperts(batches, *scratch);
    AsHostCodec(*codec).Encode(rows, 512, wire.data(), nullptr);
    device->row_ops().WeightedSumBf16(rows, weights, 512, sum.data());
    device->row_ops().RoundToBf16(sum.data(), 512, y.data());
  }

  EXPECT_EQ(testing::AllocationsOfThisThread(), before);
  EXPECT_GT(before, 0) << "the counter counts nothing";
}

}  // namespace
}  // namespace switchyard
