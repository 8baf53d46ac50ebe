#include "core/placement_map.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

PhysicalExpert At(std::int32_t expert, std::int32_t worker, std::int32_t slot) {
  return {ExpertId{expert}, WorkerOrdinal{worker}, SlotId{slot}};
}

// Three experts on two workers; expert 1 has a replica on each.
LayerPlacement WithReplica() {
  return {LayerId{4}, {At(0, 0, 0), At(1, 0, 1), At(2, 1, 0), At(1, 1, 1)}};
}

TEST(PlacementMapTest, ReplicasComeInAscendingWorker) {
  const PlacementMap map(WithReplica(), 3, 2);

  ASSERT_EQ(map.Replicas(ExpertId{1}).size(), 2U);
  EXPECT_EQ(map.Replicas(ExpertId{1})[0], At(1, 0, 1));
  EXPECT_EQ(map.Replicas(ExpertId{1})[1], At(1, 1, 1));
  ASSERT_EQ(map.Replicas(ExpertId{0}).size(), 1U);
  EXPECT_EQ(map.experts(), 3);
  EXPECT_EQ(map.workers(), 2);
}

TEST(PlacementMapTest, WorkersListTheirSlotsInOrder) {
  LayerPlacement shuffled = WithReplica();
  std::reverse(shuffled.experts.begin(), shuffled.experts.end());

  const PlacementMap map(shuffled, 3, 3);

  ASSERT_EQ(map.OnWorker(WorkerOrdinal{1}).size(), 2U);
  EXPECT_EQ(map.OnWorker(WorkerOrdinal{1})[0], At(2, 1, 0));
  EXPECT_EQ(map.OnWorker(WorkerOrdinal{1})[1], At(1, 1, 1));
  EXPECT_TRUE(map.OnWorker(WorkerOrdinal{2}).empty());
}

// Random placements: each physical expert is found from both sides, and nothing else is.
TEST(PlacementMapTest, BothViewsHoldTheSameExperts) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SeededRng rng(seed);
    const auto experts = static_cast<std::int32_t>(1 + rng.Below(40));
    const auto workers = static_cast<std::int32_t>(1 + rng.Below(6));
    LayerPlacement placement{LayerId{0}, {}};
    std::vector<std::int32_t> next_slot(static_cast<std::size_t>(workers), 0);
    for (std::int32_t e = 0; e < experts; ++e) {
      const auto home = static_cast<std::int32_t>(rng.Below(static_cast<std::uint64_t>(workers)));
      placement.experts.push_back(At(e, home, next_slot[static_cast<std::size_t>(home)]++));
    }
    std::sort(placement.experts.begin(), placement.experts.end(),
              [](const PhysicalExpert& a, const PhysicalExpert& b) {
                return std::pair(a.worker, a.slot) < std::pair(b.worker, b.slot);
              });
    SY_ASSERT_OK(ValidatePlacement(placement, experts, workers));

    const PlacementMap map(placement, experts, workers);

    std::size_t on_workers = 0;
    for (std::int32_t w = 0; w < workers; ++w) {
      for (const PhysicalExpert& p : map.OnWorker(WorkerOrdinal{w})) {
        ASSERT_EQ(map.Replicas(p.expert).size(), 1U) << "seed " << seed;
        ASSERT_EQ(map.Replicas(p.expert)[0], p) << "seed " << seed;
        ++on_workers;
      }
    }
    ASSERT_EQ(on_workers, placement.experts.size()) << "seed " << seed;
  }
}

TEST(ValidatePlacementTest, AcceptsReplicasAndUnevenSizes) {
  SY_EXPECT_OK(ValidatePlacement(WithReplica(), 3, 2));
  SY_EXPECT_OK(ValidatePlacement({LayerId{0}, {At(0, 0, 0), At(1, 0, 1), At(2, 1, 0)}}, 3, 2));
}

TEST(ValidatePlacementTest, RefusesWhatCannotServe) {
  struct Case {
    const char* message;
    std::function<void(LayerPlacement*)> damage;
  };
  const std::vector<Case> cases{
      {"expert 3 of 3 does not exist", [](LayerPlacement* p) { p->experts[0].expert.value = 3; }},
      {"expert -1 of 3 does not exist", [](LayerPlacement* p) { p->experts[0].expert.value = -1; }},
      {"worker ordinal 2 of 2", [](LayerPlacement* p) { p->experts[0].worker.value = 2; }},
      {"worker ordinal -1 of 2", [](LayerPlacement* p) { p->experts[0].worker.value = -1; }},
      {"holds two experts", [](LayerPlacement* p) { p->experts[1].slot.value = 0; }},
      {"two slots on worker ordinal 1", [](LayerPlacement* p) { p->experts[2].expert.value = 1; }},
      {"not dense", [](LayerPlacement* p) { p->experts[1].slot.value = 7; }},
      {"not dense", [](LayerPlacement* p) { p->experts[0].slot.value = -1; }},
      {"expert 2 is on no worker",
       [](LayerPlacement* p) {
         p->experts.erase(p->experts.begin() + 2);
         p->experts[2].slot.value = 0;
       }},
      {"not sorted", [](LayerPlacement* p) { std::swap(p->experts[0], p->experts[1]); }},
      {"not sorted", [](LayerPlacement* p) { std::swap(p->experts[1], p->experts[2]); }},
  };
  for (const Case& c : cases) {
    LayerPlacement placement = WithReplica();
    c.damage(&placement);

    const absl::Status status = ValidatePlacement(placement, 3, 2);

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("layer 4"));
  }
}

TEST(PlacementMapDeathTest, AnIndexOfAnotherLayerEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const PlacementMap map(WithReplica(), 3, 2);

  EXPECT_DEATH(static_cast<void>(map.Replicas(ExpertId{3})), "an expert of another layer");
  EXPECT_DEATH(static_cast<void>(map.OnWorker(WorkerOrdinal{-1})), "a worker of another plan");
}

}  // namespace
}  // namespace switchyard
