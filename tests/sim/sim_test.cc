// The simulation over 500 seeds. That it sees is shown by scripts/mutants: every seeded bug of the
// protocol is found within as many.
#include <cstdint>

#include "gtest/gtest.h"

#include "tests/sim/world.h"

namespace switchyard::sim {
namespace {

constexpr std::uint64_t kSeeds = 500;
constexpr std::uint64_t kSeedsOfAPart = 50;

void Add(SimStats& sum, const SimStats& one) {
  sum.epochs_served += one.epochs_served;
  sum.aborts += one.aborts;
  sum.coordinator_starts += one.coordinator_starts;
  sum.worker_starts += one.worker_starts;
  sum.sessions += one.sessions;
  sum.switches += one.switches;
  sum.faults += one.faults;
  sum.source_starts += one.source_starts;
  sum.steps_done += one.steps_done;
  sum.int8_steps_done += one.int8_steps_done;
  sum.steps_failed += one.steps_failed;
}

class SimulationTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SimulationTest, KeepsEveryInvariant) {
  SimStats sum;
  for (std::uint64_t i = 0; i < kSeedsOfAPart; ++i) {
    const std::uint64_t seed = GetParam() + i;

    const SimResult result = World({.seed = seed}).Run();

    ASSERT_EQ(result.violation, "") << LastEvents({.seed = seed}, 40)
                                    << "\nreplay: switchyard-sim --seed=" << seed << " --trace";
    Add(sum, result.stats);
  }
  // A storm that does not blow proves nothing.
  const int seeds = static_cast<int>(kSeedsOfAPart);
  EXPECT_GT(sum.faults, 10 * seeds);
  EXPECT_GT(sum.epochs_served, 4 * seeds);
  EXPECT_GT(sum.aborts, seeds);
  EXPECT_GT(sum.coordinator_starts, seeds * 5 / 4);
  EXPECT_GT(sum.worker_starts, 4 * seeds);
  EXPECT_GT(sum.switches, seeds);
  EXPECT_GT(sum.source_starts, seeds * 5 / 4);
  EXPECT_GT(sum.steps_done, 200 * seeds);
  EXPECT_GT(sum.int8_steps_done, 50 * seeds);
  EXPECT_LT(sum.int8_steps_done, sum.steps_done - 50 * seeds);
  EXPECT_GT(sum.steps_failed, seeds);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest,
                         ::testing::Range(std::uint64_t{1}, kSeeds + 1, kSeedsOfAPart));

TEST(SimulationReplayTest, TheSameSeedDoesTheSame) {
  for (const std::uint64_t seed : {3U, 77U}) {
    const SimResult first = World({.seed = seed}).Run();
    const SimResult second = World({.seed = seed}).Run();
    EXPECT_EQ(first.stats.steps, second.stats.steps);
    EXPECT_EQ(first.stats.epochs_served, second.stats.epochs_served);
    EXPECT_EQ(first.stats.sessions, second.stats.sessions);
    EXPECT_EQ(first.stats.steps_done, second.stats.steps_done);
  }
}

}  // namespace
}  // namespace switchyard::sim
