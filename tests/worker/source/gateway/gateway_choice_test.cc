#include "worker/source/gateway/gateway_choice.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

Plan PlanOf(const std::vector<std::string>& endpoints) {
  Plan plan;
  for (const std::string& endpoint : endpoints) {
    plan.workers.push_back({"worker of " + endpoint, {1, 1}, endpoint, DeviceKind::kCpu, "x"});
  }
  return plan;
}

TEST(GatewayChoiceTest, AsksTheNamedOnesInTurnAndThenTheWorkersOfThePlan) {
  GatewayChoice choice({"a", "b"});
  choice.SetPlan(PlanOf({"b", "c"}));
  EXPECT_EQ(choice.size(), 3U);
  for (const char* next : {"a", "b", "c", "a", "b"}) EXPECT_EQ(choice.Next(""), next);
}

TEST(GatewayChoiceTest, SkipsTheOneThatLeavesUnlessThereIsNoOther) {
  GatewayChoice choice({"a", "b"});
  EXPECT_EQ(choice.Next("a"), "b");
  EXPECT_EQ(choice.Next("a"), "b");
  GatewayChoice one({"a"});
  EXPECT_EQ(one.Next("a"), "a");
}

TEST(GatewayChoiceTest, FollowsAPlanThatBecomesShorter) {
  GatewayChoice choice({"a"});
  choice.SetPlan(PlanOf({"b", "c", "d"}));
  for (const char* next : {"a", "b", "c"}) EXPECT_EQ(choice.Next(""), next);
  choice.SetPlan(PlanOf({"b"}));
  EXPECT_EQ(choice.size(), 2U);
  EXPECT_EQ(choice.Next(""), "b");
  EXPECT_EQ(choice.Next(""), "a");
}

}  // namespace
}  // namespace switchyard
