#include "services/bin/start_progress.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

StagingView Loading(std::int64_t done, std::int64_t rate, Duration left) {
  return {.worker = "w",
          .step = StagingStep::kLoading,
          .progress = {.deployment = "d",
                       .epoch = Epoch{1},
                       .experts_done = 1,
                       .experts = 4,
                       .bytes_done = done,
                       .bytes = 100 * kMiB},
          .pace = {.bytes_per_second = rate, .left = left, .still = {}},
          .waits_for = ""};
}

TEST(StartProgressTest, TheCheckpointThatIsReadComesBeforeWhatWorkersLoad) {
  CoordinatorView view;
  EXPECT_FALSE(ProgressOf(view).has_value());
  view.deployments.resize(2);
  view.deployments[0].reading = ReadingView{.model = "m", .checkpoint = "/models/a", .pace = {}};
  EXPECT_FALSE(ProgressOf(view).has_value()) << "it is not begun";

  view.deployments[1].reading =
      ReadingView{.model = "m",
                  .checkpoint = "/models/b",
                  .bytes_done = 3,
                  .bytes = 9,
                  .pace = {.bytes_per_second = 2, .left = std::nullopt, .still = {}}};
  const auto facts = ProgressOf(view);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->what, "reading /models/b");
  EXPECT_EQ(facts->bytes_done, 3);
  EXPECT_EQ(facts->bytes, 9);
  EXPECT_EQ(facts->bytes_per_second, 2);
}

TEST(StartProgressTest, WorkersAreSummedAndTheLastDecidesHowLong) {
  CoordinatorView view;
  view.deployments.resize(1);
  auto& staging = view.deployments[0].staging;
  staging.push_back(Loading(10 * kMiB, 5 * kMiB, std::chrono::seconds(18)));
  staging.push_back(Loading(50 * kMiB, 1 * kMiB, std::chrono::seconds(50)));
  staging.push_back(Loading(100 * kMiB, 0, {}));
  staging.back().step = StagingStep::kPrepared;

  const auto facts = ProgressOf(view);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->what, "2 workers loading");
  EXPECT_EQ(facts->bytes_done, 160 * kMiB);
  EXPECT_EQ(facts->bytes, 300 * kMiB);
  EXPECT_EQ(facts->bytes_per_second, 6 * kMiB);
  EXPECT_EQ(facts->left, std::chrono::seconds(50));
  for (StagingView& one : staging) one.step = StagingStep::kPrepared;
  EXPECT_FALSE(ProgressOf(view).has_value());
}

TEST(StartProgressTest, AWorkerDrawsTheEpochThatItLoads) {
  WorkerProgress progress;
  Heartbeat heartbeat;
  const TimePoint begin{};
  EXPECT_FALSE(progress.Of(heartbeat, begin).has_value());
  heartbeat.staging.push_back(Loading(100 * kMiB, 0, {}).progress);
  EXPECT_FALSE(progress.Of(heartbeat, begin).has_value()) << "all of it is there";

  heartbeat.staging.push_back(Loading(10 * kMiB, 0, {}).progress);
  EXPECT_TRUE(progress.Of(heartbeat, begin).has_value());
  heartbeat.staging.back().bytes_done = 30 * kMiB;
  const auto facts = progress.Of(heartbeat, begin + std::chrono::seconds(2));
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->what, "loading epoch 1 of d");
  EXPECT_EQ(facts->bytes_per_second, 10 * kMiB);
  EXPECT_EQ(facts->left, std::chrono::seconds(7));
}

}  // namespace
}  // namespace switchyard
