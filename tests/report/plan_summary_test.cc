#include "report/plan_summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

TEST(RangesTest, JoinsNeighborsInAnyOrder) {
  EXPECT_EQ(Ranges({}), "");
  EXPECT_EQ(Ranges({7}), "7");
  EXPECT_EQ(Ranges({8, 0, 1, 3, 2, 1}), "0-3 8");
  EXPECT_EQ(Ranges({4, 6, 7, 9}), "4 6-7 9");
}

Plan TwoWorkers() {
  Plan plan;
  plan.workers = {{"w0", {1, 1}, "a:1", DeviceKind::kCpu, "x"},
                  {"w1", {1, 2}, "b:1", DeviceKind::kCpu, "x"},
                  {"w2", {1, 3}, "c:1", DeviceKind::kCpu, "x"}};
  for (const int layer : {1, 2, 5}) {
    LayerPlacement placement{LayerId{layer}, {}};
    const int first_of_w1 = layer == 2 ? 3 : 2;
    for (int e = 0; e < 4; ++e) {
      const int worker = e < first_of_w1 ? 0 : 1;
      placement.experts.push_back({ExpertId{e}, WorkerOrdinal{worker}, SlotId{e}});
    }
    plan.layers.push_back(placement);
  }
  return plan;
}

TEST(SummarizePlacementTest, LayersWithTheSameExpertsShareARow) {
  std::vector<std::string> rows;
  for (const PlacementRow& row : SummarizePlacement(TwoWorkers())) {
    rows.push_back(std::to_string(row.worker.value) + "|" + row.layers + "|" + row.experts + "|" +
                   std::to_string(row.per_layer));
  }

  EXPECT_THAT(rows, ElementsAre("0|1 5|0-1|2", "0|2|0-2|3", "1|1 5|2-3|2", "1|2|3|1", "2|||0"));
}

TEST(SummarizeConfigsTest, ConfigsThatDifferInTheirLayerAloneShareARow) {
  std::vector<DispatchConfig> configs;
  for (const int layer : {0, 1, 2, 3}) {
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      DispatchConfig config;
      config.layer = LayerId{layer};
      config.phase = phase;
      config.trail = {layer == 2 && phase == Phase::kDecode ? "other" : "same"};
      configs.push_back(config);
    }
  }

  std::vector<std::string> rows;
  for (const ConfigRow& row : SummarizeConfigs(configs)) {
    rows.push_back(std::string(PhaseName(row.config.phase)) + "|" + row.layers + "|" +
                   row.config.trail[0]);
  }

  EXPECT_THAT(rows, ElementsAre("prefill|0-3|same", "decode|0-1 3|same", "decode|2|other"));
}

TEST(EdgeTextTest, SaysFromWhereToWhere) {
  EXPECT_EQ(EdgeText({DeviceKind::kCpu, DeviceKind::kAscend}), "cpu -> ascend");
}

}  // namespace
}  // namespace switchyard
