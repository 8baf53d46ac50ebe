#include "tools/deployment/routing_tally.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int32_t kHidden = 8;
constexpr std::uint64_t kRowBytes = 2 * kHidden;

// Experts 0 and 1 on w0, 2 and 3 on w1, in layers 5 and 6.
Plan TwoWorkers() {
  Plan plan;
  plan.shape = {.hidden = kHidden, .intermediate = 4, .experts = 4, .top_k = 2};
  plan.workers = {{"w0", {1, 1}, "a:1", DeviceKind::kCpu, "x"},
                  {"w1", {1, 2}, "b:1", DeviceKind::kCpu, "x"}};
  for (const int layer : {5, 6}) {
    LayerPlacement placement{LayerId{layer}, {}};
    for (int e = 0; e < 4; ++e) {
      placement.experts.push_back({ExpertId{e}, WorkerOrdinal{e / 2}, SlotId{e % 2}});
    }
    plan.layers.push_back(placement);
  }
  return plan;
}

// Three tokens: both experts on w0; one on each; one on w1 and none.
const std::vector<std::int32_t> kIds{0, 1, 1, 2, 3, -1};

void Count(RoutingTally& tally, int layer) {
  MoeCall call;
  call.layer = LayerId{layer};
  call.tokens = 3;
  call.top_k = 2;
  call.ids = kIds;
  tally.Count(call);
}

void ExpectCounts(const WorkerCounts& counts, std::uint64_t rows, std::uint64_t wire_rows,
                  std::uint64_t hits) {
  EXPECT_EQ(counts.rows, rows);
  EXPECT_EQ(counts.request_bytes, wire_rows * kRowBytes);
  EXPECT_EQ(counts.reply_bytes, wire_rows * kRowBytes);
  EXPECT_EQ(counts.expert_hits, hits);
}

TEST(RoutingTallyTest, NormalSendsATokenOnceToEachWorker) {
  RoutingTally tally(TwoWorkers(), Phase::kPrefill, DispatchMode::kNormal, "");

  Count(tally, 5);

  ExpectCounts(tally.Of(0), 2, 2, 3);
  ExpectCounts(tally.Of(1), 2, 2, 2);
}

TEST(RoutingTallyTest, LowLatencySendsATokenOnceToEachExpert) {
  RoutingTally tally(TwoWorkers(), Phase::kPrefill, DispatchMode::kLowLatency, "");

  Count(tally, 5);

  ExpectCounts(tally.Of(0), 3, 3, 3);
  ExpectCounts(tally.Of(1), 2, 2, 2);
}

// R127: the bytes of a row are those of its layer's dtype in the session's phase.
TEST(RoutingTallyTest, RowsCostTheBytesOfTheirLayersDtype) {
  Plan plan = TwoWorkers();
  plan.shape.hidden = 256;
  const auto add = [&plan](int layer, Phase phase, DispatchDtype dtype) {
    DispatchConfig config;
    config.layer = LayerId{layer};
    config.phase = phase;
    config.wire_dtype = dtype;
    plan.configs.push_back(config);
  };
  add(5, Phase::kPrefill, DispatchDtype::kFp8);
  add(6, Phase::kPrefill, DispatchDtype::kBf16);
  add(6, Phase::kDecode, DispatchDtype::kInt8);
  RoutingTally tally(plan, Phase::kPrefill, DispatchMode::kNormal, "");

  Count(tally, 5);
  Count(tally, 6);

  EXPECT_EQ(tally.Of(0).request_bytes, 2 * (256 + 2 * 4) + 2 * 512);
  EXPECT_EQ(tally.Of(0).reply_bytes, 4 * 512);
}

TEST(RoutingTallyTest, RowsOfAGatewayForItsOwnExpertsCostNoBytes) {
  RoutingTally tally(TwoWorkers(), Phase::kPrefill, DispatchMode::kLowLatency, "w1");

  Count(tally, 5);
  Count(tally, 6);

  ExpectCounts(tally.Of(0), 6, 6, 6);
  ExpectCounts(tally.Of(1), 4, 0, 4);
}

TEST(RoutingTallyTest, HitsAreComparedByLayerAndExpert) {
  RoutingTally tally(TwoWorkers(), Phase::kPrefill, DispatchMode::kNormal, "");
  Count(tally, 5);
  Count(tally, 6);
  const AttachmentCounters::Hit zero{LayerId{5}, ExpertId{0}, 1};
  const AttachmentCounters::Hit one{LayerId{5}, ExpertId{1}, 2};
  const AttachmentCounters::Hit zero_of_6{LayerId{6}, ExpertId{0}, 1};
  const AttachmentCounters::Hit one_of_6{LayerId{6}, ExpertId{1}, 2};

  EXPECT_THAT(tally.CompareHits(0, {zero, one, zero_of_6, one_of_6}), IsEmpty());
  EXPECT_THAT(tally.CompareHits(0, {zero, {LayerId{5}, ExpertId{1}, 3}, zero_of_6, one_of_6}),
              ElementsAre("layer 5 expert 1: counted 3 rows, predicted 2"));
  EXPECT_THAT(tally.CompareHits(0, {zero, one, zero_of_6}),
              ElementsAre("layer 6 expert 1: counted no rows, predicted 2"));
  EXPECT_THAT(tally.CompareHits(0, {zero, one, zero_of_6, one_of_6, {LayerId{6}, ExpertId{3}, 1}}),
              ElementsAre("layer 6 expert 3: counted 1 rows, predicted 0"));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
