#include "core/plan.h"

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

Plan SmallPlan() {
  Plan plan;
  plan.deployment = "demo";
  plan.model = "m";
  plan.epoch = Epoch{3};
  plan.shape = {.hidden = 8, .intermediate = 4, .experts = 3, .top_k = 2};
  plan.workers = {{"a", {1, 2}, "127.0.0.1:1", DeviceKind::kCpu, "scalar"},
                  {"b", {3, 4}, "127.0.0.1:2", DeviceKind::kCpu, "scalar"}};
  plan.layers = {{LayerId{1},
                  {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}},
                   {ExpertId{1}, WorkerOrdinal{0}, SlotId{1}},
                   {ExpertId{2}, WorkerOrdinal{1}, SlotId{0}}}}};
  DispatchConfig config;
  config.layer = LayerId{1};
  config.trail = {"because"};
  plan.configs = {config};
  return plan;
}

TEST(PlanTest, RoundTripsThroughItsCanonicalBytes) {
  const Plan plan = SmallPlan();

  SY_ASSERT_OK_AND_ASSIGN(const Plan parsed, ParsePlan(CanonicalBytes(plan)));

  EXPECT_EQ(parsed, plan);
  EXPECT_EQ(HashOf(parsed), HashOf(plan));
}

TEST(PlanTest, HashSeesEveryByteOfThePlan) {
  const Plan plan = SmallPlan();
  Plan other = plan;
  other.configs[0].trail[0] = "Because";
  EXPECT_NE(HashOf(plan), HashOf(other));
  other = plan;
  other.workers[1].incarnation.low ^= 1;
  EXPECT_NE(HashOf(plan), HashOf(other));
}

TEST(PlanTest, RefusesEveryTruncationAndTrailingBytes) {
  const std::string bytes = CanonicalBytes(SmallPlan());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParsePlan(absl::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(ParsePlan(bytes + "x").ok());
}

TEST(PlanTest, SurvivesRandomDamage) {
  const std::string bytes = CanonicalBytes(SmallPlan());
  SeededRng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    ParsePlan(damaged).IgnoreError();  // Any answer but a crash.
  }
}

TEST(PlanTest, RefusesAStoredKindOfDeviceThatDoesNotExist) {
  Plan plan = SmallPlan();
  plan.workers[1].device = kLastDeviceKind;
  SY_EXPECT_OK(ParsePlan(CanonicalBytes(plan)));

  plan.workers[1].device = static_cast<DeviceKind>(kDeviceKinds);

  EXPECT_FALSE(ParsePlan(CanonicalBytes(plan)).ok());
}

TEST(PlanTest, ValidateRefusesUncoveredExpertsAndDoubleSlots) {
  SY_EXPECT_OK(ValidatePlan(SmallPlan()));

  Plan uncovered = SmallPlan();
  uncovered.layers[0].experts.pop_back();
  EXPECT_THAT(ValidatePlan(uncovered),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));

  Plan doubled = SmallPlan();
  doubled.layers[0].experts[1].slot = SlotId{0};
  EXPECT_THAT(ValidatePlan(doubled),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));

  Plan unconfigured = SmallPlan();
  unconfigured.configs.clear();
  EXPECT_THAT(ValidatePlan(unconfigured),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(PlacementMapTest, FindsReplicasAndSlots) {
  const Plan plan = SmallPlan();
  const PlacementMap map(plan.layers[0], 3, 2);

  ASSERT_EQ(map.Replicas(ExpertId{2}).size(), 1U);
  EXPECT_EQ(map.Replicas(ExpertId{2})[0].worker, WorkerOrdinal{1});
  ASSERT_EQ(map.OnWorker(WorkerOrdinal{0}).size(), 2U);
  EXPECT_EQ(map.OnWorker(WorkerOrdinal{0})[1].expert, ExpertId{1});
}

}  // namespace
}  // namespace switchyard
