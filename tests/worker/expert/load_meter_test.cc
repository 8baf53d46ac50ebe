#include "worker/expert/load_meter.h"

#include <chrono>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kStart{seconds(1000)};

// An epoch of two layers, whose slots hold experts 5, 6, 7... in this order.
EpochRuntime AnEpoch(std::uint64_t epoch, std::size_t slots) {
  EpochRuntime runtime;
  runtime.plan.deployment = "demo";
  runtime.plan.epoch = Epoch{epoch};
  for (const std::int32_t id : {3, 8}) {
    LayerRuntime layer;
    layer.layer = LayerId{id};
    for (std::size_t i = 0; i < slots; ++i) {
      layer.slots.emplace_back().expert = ExpertId{static_cast<std::int32_t>(5 + i)};
    }
    layer.load = std::make_shared<LayerLoad>(slots);
    runtime.layers.push_back(std::move(layer));
  }
  return runtime;
}

TEST(LoadMeterTest, ReportsWhatWasServedSinceTheLastReportOfBothLanes) {
  const EpochRuntime runtime = AnEpoch(4, 3);
  LoadMeter meter;
  meter.Activate(runtime);

  runtime.layers[0].load->Add(LoadLane::kAttached, 1, 10);
  runtime.layers[0].load->Add(LoadLane::kDirect, 1, 7);
  runtime.layers[1].load->Add(LoadLane::kAttached, 2, 1);
  const std::vector<LoadReport> first = meter.Take(kStart);
  runtime.layers[1].load->Add(LoadLane::kAttached, 2, 5);
  const std::vector<LoadReport> second = meter.Take(kStart + seconds(1));

  EXPECT_THAT(
      first, ElementsAre(LoadReport{
                 "demo", Epoch{4}, {{LayerId{3}, ExpertId{6}, 17}, {LayerId{8}, ExpertId{7}, 1}}}));
  EXPECT_THAT(second, ElementsAre(LoadReport{"demo", Epoch{4}, {{LayerId{8}, ExpertId{7}, 5}}}));
  EXPECT_THAT(meter.Take(kStart + seconds(2)), IsEmpty());
}

TEST(LoadMeterTest, ReportsOnceASecondAndLosesNothingBetween) {
  const EpochRuntime runtime = AnEpoch(4, 1);
  LoadMeter meter;
  meter.Activate(runtime);
  SeededRng rng(7);
  std::uint64_t served = 0;
  std::uint64_t reported = 0;
  int reports = 0;

  for (int tick = 0; tick <= 40; ++tick) {
    const auto rows = static_cast<std::uint32_t>(1 + rng.Below(1'500'000'000));  // wraps at times
    runtime.layers[0].load->Add(LoadLane::kAttached, 0, rows % 100'000'000);
    served += rows % 100'000'000;
    for (const LoadReport& report : meter.Take(kStart + tick * milliseconds(250))) {
      ++reports;
      for (const ExpertLoad& one : report.experts) reported += one.rows;
    }
  }

  EXPECT_EQ(reports, 11);
  EXPECT_EQ(reported, served);
}

TEST(LoadMeterTest, ADroppedEpochIsReportedOnceMore) {
  const EpochRuntime runtime = AnEpoch(4, 1);
  LoadMeter meter;
  meter.Activate(runtime);
  runtime.layers[0].load->Add(LoadLane::kAttached, 0, 9);

  meter.Drop("demo", Epoch{4});
  const std::vector<LoadReport> last = meter.Take(kStart);
  runtime.layers[0].load->Add(LoadLane::kAttached, 0, 9);

  EXPECT_EQ(last.size(), 1U);
  EXPECT_THAT(meter.Take(kStart + seconds(1)), IsEmpty());
  EXPECT_EQ(runtime.layers[0].load.use_count(), 1);
}

TEST(LoadMeterTest, WhatHasNoRoomIsInTheNextReport) {
  const std::size_t slots = kLoadExpertsMax;
  const EpochRuntime runtime = AnEpoch(4, slots);
  LoadMeter meter;
  meter.Activate(runtime);
  for (const LayerRuntime& layer : runtime.layers) {
    for (std::size_t i = 0; i < slots; ++i) layer.load->Add(LoadLane::kAttached, i, 2);
  }

  const std::vector<LoadReport> first = meter.Take(kStart);
  const std::vector<LoadReport> second = meter.Take(kStart + seconds(1));

  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(first[0].experts.size(), slots);
  EXPECT_EQ(first[0].experts.back().layer, LayerId{3});
  EXPECT_EQ(second[0].experts.size(), slots);
  EXPECT_EQ(second[0].experts.front().layer, LayerId{8});
  EXPECT_THAT(meter.Take(kStart + seconds(2)), IsEmpty());
}

}  // namespace
}  // namespace switchyard
