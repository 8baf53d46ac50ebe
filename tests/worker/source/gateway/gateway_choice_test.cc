#include "worker/source/gateway/gateway_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

Plan PlanOf(const std::vector<std::string>& endpoints) {
  Plan plan;
  for (const std::string& endpoint : endpoints) {
    plan.workers.push_back({"worker of " + endpoint, {1, 1}, endpoint, DeviceKind::kCpu, "x"});
  }
  return plan;
}

std::vector<std::string> Ask(GatewayChoice& choice, int times, const std::string& but = "") {
  std::vector<std::string> asked;
  for (int i = 0; i < times; ++i) asked.push_back(choice.Next(but));
  return asked;
}

TEST(GatewayChoiceTest, AsksANamedOneEveryOtherTime) {
  GatewayChoice choice({"a", "b"});
  EXPECT_THAT(Ask(choice, 3), ElementsAre("a", "b", "a"));
  choice.SetPlan(PlanOf({"b", "c", "d"}));
  EXPECT_EQ(choice.size(), 4U);
  EXPECT_THAT(Ask(choice, 6), ElementsAre("c", "b", "d", "a", "c", "b"));
}

TEST(GatewayChoiceTest, SkipsTheOneThatLeavesUnlessThereIsNoOther) {
  GatewayChoice choice({"a", "b"});
  EXPECT_THAT(Ask(choice, 3, "a"), ElementsAre("b", "b", "b"));
  GatewayChoice one({"a"});
  EXPECT_THAT(Ask(one, 2, "a"), ElementsAre("a", "a"));
}

TEST(GatewayChoiceTest, FollowsAPlanThatBecomesShorter) {
  GatewayChoice choice({"a"});
  choice.SetPlan(PlanOf({"b", "c", "d"}));
  EXPECT_THAT(Ask(choice, 6), ElementsAre("a", "b", "a", "c", "a", "d"));
  choice.SetPlan(PlanOf({"b"}));
  EXPECT_EQ(choice.size(), 2U);
  EXPECT_THAT(Ask(choice, 3), ElementsAre("a", "b", "a"));
}

}  // namespace
}  // namespace switchyard
