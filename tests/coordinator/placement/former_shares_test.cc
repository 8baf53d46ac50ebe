#include "coordinator/placement/former_shares.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::minutes;

Plan PlanOf(const std::vector<std::string>& workers) {
  Plan plan;
  plan.layers = {{LayerId{3}, {}}};
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto n = static_cast<std::int32_t>(w);
    plan.workers.emplace_back().id = workers[w];
    plan.layers[0].experts.push_back({ExpertId{n}, WorkerOrdinal{n}, SlotId{0}});
  }
  return plan;
}

TEST(FormerSharesTest, RemembersWhoWasLeftOutForAWhile) {
  FormerShares former(minutes(10));
  const TimePoint start{minutes(100)};
  const Plan both = PlanOf({"a", "b"});
  const Plan one = PlanOf({"a"});
  former.OnReplaced(nullptr, both, start);
  former.OnReplaced(&both, one, start);

  EXPECT_EQ(former.Of("b", start + minutes(9)),
            (std::vector<LayerExpert>{{LayerId{3}, ExpertId{1}}}));
  EXPECT_TRUE(former.Of("a", start).empty()) << "it is still in the plan";
  EXPECT_TRUE(former.Of("c", start).empty());
  EXPECT_TRUE(former.Of("b", start + minutes(10)).empty());

  former.OnReplaced(&one, both, start + minutes(1));
  EXPECT_TRUE(former.Of("b", start + minutes(1)).empty()) << "it is back";
}

}  // namespace
}  // namespace switchyard
