#include "worker/routing/dispatch_plan.h"

#include <algorithm>
#include <tuple>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::RandomPlacement;
using testing::RandomRouting;
using testing::Routing;

// The home of a pair by search through the placement, without PlacementMap.
PhysicalExpert HomeOf(const LayerPlacement& placement, std::int32_t expert) {
  PhysicalExpert home{ExpertId{-1}, WorkerOrdinal{INT32_MAX}, SlotId{-1}};
  for (const PhysicalExpert& p : placement.experts) {
    if (p.expert.value == expert && p.worker < home.worker) home = p;
  }
  return home;
}

using Row = std::tuple<std::uint32_t, std::uint32_t, std::int32_t>;  // token, k, slot

std::vector<Row> RowsOf(const WorkerRows& worker) {
  std::vector<Row> rows;
  for (const PlannedRow& row : worker.rows) rows.emplace_back(row.token, row.k, row.slot);
  return rows;
}

// What worker `w` must get, by going through everything.
std::vector<Row> ExpectedRows(const Routing& routing, const LayerPlacement& placement,
                              DispatchMode mode, std::int32_t w) {
  std::vector<Row> rows;
  for (std::int32_t t = 0; t < routing.shape.tokens; ++t) {
    bool once = false;
    for (std::int32_t k = 0; k < routing.shape.top_k; ++k) {
      const std::int32_t id = routing.ids[static_cast<std::size_t>(t * routing.shape.top_k + k)];
      if (id < 0) continue;
      const PhysicalExpert home = HomeOf(placement, id);
      if (home.worker.value != w) continue;
      if (mode == DispatchMode::kLowLatency) {
        rows.emplace_back(t, k, home.slot.value);
      } else if (!once) {
        rows.emplace_back(t, 0, -1);
        once = true;
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return std::get<2>(a) < std::get<2>(b); });
  return rows;
}

void ExpectPlanIsExact(const Routing& routing, const LayerPlacement& placement,
                       std::int32_t workers, DispatchMode mode, const DispatchPlan& plan) {
  ASSERT_EQ(plan.workers.size(), static_cast<std::size_t>(workers));
  for (std::int32_t w = 0; w < workers; ++w) {
    const WorkerRows& got = plan.workers[static_cast<std::size_t>(w)];
    EXPECT_EQ(got.worker.value, w);
    EXPECT_EQ(RowsOf(got), ExpectedRows(routing, placement, mode, w)) << "worker " << w;
    std::vector<std::uint32_t> counts(got.slot_counts.size(), 0);
    if (mode == DispatchMode::kNormal) continue;
    for (const PlannedRow& row : got.rows) ++counts.at(static_cast<std::size_t>(row.slot));
    EXPECT_EQ(got.slot_counts, counts) << "worker " << w;
  }
  for (std::size_t pair = 0; pair < routing.ids.size(); ++pair) {
    const PhysicalExpert home = routing.ids[pair] < 0
                                    ? PhysicalExpert{ExpertId{-1}, WorkerOrdinal{-1}, SlotId{-1}}
                                    : HomeOf(placement, routing.ids[pair]);
    ASSERT_EQ(plan.slot_of_pair[pair], home.slot.value) << "pair " << pair;
    ASSERT_EQ(plan.worker_of_pair[pair], home.worker.value) << "pair " << pair;
  }
}

// R48, R62 (top-k up to 32)
TEST(DispatchPlanTest, EqualsBruteForceOnRandomRoutingWithReplicasAndAbsentIds) {
  DispatchPlan plan;  // Reused, as a session does.
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    const auto workers = static_cast<std::int32_t>(1 + rng.Below(6));
    const auto experts = static_cast<std::int32_t>(1 + rng.Below(64));
    const auto top_k =
        static_cast<std::int32_t>(1 + rng.Below(static_cast<std::uint64_t>(std::min(experts, 32))));
    const auto tokens = static_cast<std::int32_t>(rng.Below(60));
    const LayerPlacement placement = RandomPlacement(rng, experts, workers, 0.4);
    const Routing routing =
        RandomRouting(rng, {tokens, top_k, experts}, rng.Uniform(), seed % 3 == 0 ? 0.3 : 0.0);
    const PlacementMap map(placement, experts, workers);
    SY_ASSERT_OK(ValidatePlacement(placement, experts, workers));
    for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
      SY_ASSERT_OK(BuildDispatchPlan(routing.batch(), map, mode, &plan));

      ExpectPlanIsExact(routing, placement, workers, mode, plan);
    }
  }
}

TEST(DispatchPlanTest, PicksTheReplicaOnTheLowestWorker) {
  const LayerPlacement placement{LayerId{0},
                                 {{ExpertId{1}, WorkerOrdinal{0}, SlotId{0}},
                                  {ExpertId{0}, WorkerOrdinal{1}, SlotId{0}},
                                  {ExpertId{1}, WorkerOrdinal{1}, SlotId{1}},
                                  {ExpertId{0}, WorkerOrdinal{2}, SlotId{0}}}};
  const PlacementMap map(placement, 2, 3);

  EXPECT_EQ(PickReplica(map.Replicas(ExpertId{0})).worker, WorkerOrdinal{1});
  EXPECT_EQ(PickReplica(map.Replicas(ExpertId{1})).worker, WorkerOrdinal{0});
}

// R58
TEST(DispatchPlanTest, SendsNothingForAbsentIdsAndForNoTokens) {
  SeededRng rng(3);
  const PlacementMap map(RandomPlacement(rng, 8, 3, 0.0), 8, 3);
  const Routing absent = RandomRouting(rng, {5, 4, 8}, 0.0, 1.1);
  DispatchPlan plan;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    for (const RoutedBatch& batch :
         {absent.batch(), RoutedBatch{.ids = {}, .tokens = 0, .top_k = 4}}) {
      SY_ASSERT_OK(BuildDispatchPlan(batch, map, mode, &plan));

      EXPECT_EQ(plan.tokens, batch.tokens);
      ASSERT_EQ(plan.workers.size(), 3U);
      for (const WorkerRows& worker : plan.workers) EXPECT_TRUE(worker.rows.empty());
    }
  }
}

// R59
TEST(DispatchPlanTest, TakesAllTokensToOneExpertAtTheFullBatch) {
  const LayerPlacement placement{
      LayerId{0},
      {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}}, {ExpertId{1}, WorkerOrdinal{1}, SlotId{0}}}};
  const std::vector<std::int32_t> ids(kDefaultMaxTokensPerStep, 1);
  const RoutedBatch batch{.ids = ids, .tokens = kDefaultMaxTokensPerStep, .top_k = 1};
  DispatchPlan plan;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK(BuildDispatchPlan(batch, PlacementMap(placement, 2, 2), mode, &plan));

    EXPECT_TRUE(plan.workers[0].rows.empty());
    ASSERT_EQ(plan.workers[1].rows.size(), static_cast<std::size_t>(kDefaultMaxTokensPerStep));
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(plan.workers[1].rows[i].token, i);
  }
}

// R61
TEST(DispatchPlanTest, PlansBatchesPast65536TokensInNormalMode) {
  for (const std::int32_t tokens : {65535, 65536, 65537, 131072}) {
    SeededRng rng(static_cast<std::uint64_t>(tokens));
    const PlacementMap map(RandomPlacement(rng, 16, 3, 0.2), 16, 3);
    const Routing routing = RandomRouting(rng, {tokens, 4, 16}, 0.3, 0.0);
    DispatchPlan plan;

    SY_ASSERT_OK(BuildDispatchPlan(routing.batch(), map, DispatchMode::kNormal, &plan));

    std::vector<int> workers_of_token(static_cast<std::size_t>(tokens), 0);
    for (const WorkerRows& worker : plan.workers) {
      EXPECT_TRUE(std::is_sorted(
          worker.rows.begin(), worker.rows.end(),
          [](const PlannedRow& a, const PlannedRow& b) { return a.token < b.token; }));
      for (const PlannedRow& row : worker.rows) ++workers_of_token.at(row.token);
    }
    for (std::size_t t = 0; t < workers_of_token.size(); ++t) {
      std::vector<std::int32_t> distinct(
          plan.worker_of_pair.begin() + 4 * static_cast<long>(t),
          plan.worker_of_pair.begin() + 4 * static_cast<long>(t + 1));
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      ASSERT_EQ(workers_of_token[t], static_cast<int>(distinct.size())) << "token " << t;
    }
  }
}

// R64
TEST(DispatchPlanTest, RefusesTheSameExpertTwiceInARow) {
  SeededRng rng(5);
  const PlacementMap map(RandomPlacement(rng, 8, 2, 0.5), 8, 2);
  const std::vector<std::int32_t> ids = {0, 1, 2, 5, -1, 5};
  DispatchPlan plan;

  const absl::Status status = BuildDispatchPlan({.ids = ids, .tokens = 2, .top_k = 3}, map,
                                                DispatchMode::kLowLatency, &plan);

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kDuplicateExpert));
  EXPECT_EQ(MetadataOf(status).at("row"), "1");
  EXPECT_EQ(MetadataOf(status).at("k"), "2");
  EXPECT_EQ(MetadataOf(status).at("expert"), "5");
}

TEST(DispatchPlanTest, RefusesIdsOutOfRangeNamingRowKAndId) {
  SeededRng rng(6);
  const PlacementMap map(RandomPlacement(rng, 8, 2, 0.5), 8, 2);
  DispatchPlan plan;
  for (const std::int32_t bad : {-2, 8, INT32_MAX, INT32_MIN}) {
    const std::vector<std::int32_t> ids = {0, 1, 2, bad};

    const absl::Status status =
        BuildDispatchPlan({.ids = ids, .tokens = 2, .top_k = 2}, map, DispatchMode::kNormal, &plan);

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
    EXPECT_EQ(MetadataOf(status).at("row"), "1");
    EXPECT_EQ(MetadataOf(status).at("expert"), std::to_string(bad));
  }
}

TEST(DispatchPlanTest, RefusesIdsThatAreNotTokensTimesTopK) {
  SeededRng rng(7);
  const PlacementMap map(RandomPlacement(rng, 8, 2, 0.0), 8, 2);
  const std::vector<std::int32_t> ids = {0, 1, 2};
  DispatchPlan plan;
  for (const auto& [tokens, top_k] : {std::pair{2, 2}, {-3, -1}, {3, 0}, {0, 1}}) {
    EXPECT_THAT(BuildDispatchPlan({.ids = ids, .tokens = tokens, .top_k = top_k}, map,
                                  DispatchMode::kNormal, &plan),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  }
}

}  // namespace
}  // namespace switchyard
