#include "tests/reference/receive_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::RandomPlacement;
using testing::RandomRouting;
using testing::Routing;

constexpr std::int32_t kExperts = 24;
constexpr std::int32_t kWorkers = 4;
constexpr std::int32_t kTopK = 5;
constexpr std::int32_t kMaxTokens = 32;

// Some sources over one placement without replicas, so that a logical expert is a physical one.
struct World {
  LayerPlacement placement;
  PlacementMap map;
  std::vector<Routing> routings;
  std::vector<DispatchPlan> plans;
};

World MakeWorld(std::uint64_t seed, DispatchMode mode) {
  SeededRng rng(seed);
  World world;
  world.placement = RandomPlacement(rng, kExperts, kWorkers, 0.0);
  world.map = PlacementMap(world.placement, kExperts, kWorkers);
  for (int source = 0; source < 3; ++source) {
    const auto tokens = source == 1 ? 0 : static_cast<std::int32_t>(rng.Below(kMaxTokens + 1));
    world.routings.push_back(RandomRouting(rng, {tokens, kTopK, kExperts}, 0.6, 0.15));
    world.plans.emplace_back();
    SY_EXPECT_OK(
        BuildDispatchPlan(world.routings.back().batch(), world.map, mode, &world.plans.back()));
  }
  return world;
}

std::int32_t PairsOf(const World& world, ExpertId expert) {
  std::int32_t pairs = 0;
  for (const Routing& routing : world.routings) {
    pairs +=
        static_cast<std::int32_t>(std::count(routing.ids.begin(), routing.ids.end(), expert.value));
  }
  return pairs;
}

// R50
TEST(ReceiveLayoutTest, SendLayoutEqualsBruteForceWithAbsentIds) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const World world = MakeWorld(seed, DispatchMode::kNormal);
    const Routing& routing = world.routings[0];

    const SendLayout layout = SendLayoutOf(world.plans[0], world.map);

    std::vector<std::int32_t> tokens_per_rank(kWorkers, 0);
    for (std::int32_t t = 0; t < routing.shape.tokens; ++t) {
      std::set<std::int32_t> ranks;
      for (const PhysicalExpert& p : world.placement.experts) {
        const auto row = routing.ids.begin() + t * kTopK;
        if (std::count(row, row + kTopK, p.expert.value) > 0) ranks.insert(p.worker.value);
      }
      for (std::int32_t w = 0; w < kWorkers; ++w) {
        const bool in = ranks.count(w) > 0;
        tokens_per_rank[static_cast<std::size_t>(w)] += in ? 1 : 0;
        EXPECT_EQ(layout.is_token_in_rank[static_cast<std::size_t>(t * kWorkers + w)], in ? 1 : 0);
      }
    }
    EXPECT_EQ(layout.num_tokens_per_rank, tokens_per_rank);
    ASSERT_EQ(layout.num_tokens_per_expert.size(), world.placement.experts.size());
    for (std::size_t p = 0; p < world.placement.experts.size(); ++p) {
      const std::int32_t expert = world.placement.experts[p].expert.value;
      EXPECT_EQ(layout.num_tokens_per_expert[p],
                std::count(routing.ids.begin(), routing.ids.end(), expert));
    }
  }
}

// R49
TEST(ReceiveLayoutTest, ReceivedCountsAreAlignedOnlyWhenAsked) {
  const World world = MakeWorld(11, DispatchMode::kNormal);
  for (std::int32_t w = 0; w < kWorkers; ++w) {
    const auto here = world.map.OnWorker(WorkerOrdinal{w});
    const auto slots = static_cast<std::int32_t>(here.size());

    const auto exact = NumRecvTokensPerExpert(world.plans, WorkerOrdinal{w}, slots, 1);
    const auto aligned =
        NumRecvTokensPerExpert(world.plans, WorkerOrdinal{w}, slots, kExpertAlignment);

    for (std::size_t s = 0; s < here.size(); ++s) {
      const std::int32_t pairs = PairsOf(world, here[s].expert);
      EXPECT_EQ(exact[s], pairs);
      EXPECT_EQ(aligned[s], (pairs + 127) / 128 * 128);
      EXPECT_EQ(aligned[s] % kExpertAlignment, 0);
    }
  }
}

// R51
TEST(ReceiveLayoutTest, MaskedMAndSourceInfoNameEveryRowOnce) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const World world = MakeWorld(seed, DispatchMode::kLowLatency);
    for (std::int32_t w = 0; w < kWorkers; ++w) {
      const auto here = world.map.OnWorker(WorkerOrdinal{w});

      const LowLatencyReceive got = LowLatencyReceiveOf(
          world.plans, WorkerOrdinal{w}, static_cast<std::int32_t>(here.size()), kMaxTokens);

      ASSERT_EQ(got.capacity, 3 * kMaxTokens);
      for (std::size_t s = 0; s < here.size(); ++s) {
        std::vector<std::int32_t> expected;
        for (std::size_t source = 0; source < world.routings.size(); ++source) {
          const auto begin = static_cast<std::int64_t>(expected.size());
          const Routing& routing = world.routings[source];
          for (std::size_t pair = 0; pair < routing.ids.size(); ++pair) {
            if (routing.ids[pair] == here[s].expert.value) {
              expected.push_back(static_cast<std::int32_t>(pair) / kTopK);
            }
          }
          const auto count = static_cast<std::int64_t>(expected.size()) - begin;
          EXPECT_EQ(got.range_info[s * 3 + source], begin << 32 | count);
        }
        EXPECT_EQ(got.masked_m[s], PairsOf(world, here[s].expert));
        expected.resize(static_cast<std::size_t>(got.capacity), -1);
        const auto row = got.src_info.begin() + static_cast<std::ptrdiff_t>(s) * got.capacity;
        EXPECT_EQ(std::vector<std::int32_t>(row, row + got.capacity), expected);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
