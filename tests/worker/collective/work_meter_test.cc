#include "worker/collective/expert/work_meter.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;

constexpr TimePoint kStart{seconds(1000)};

TEST(WorkMeterTest, TotalsHaveRequestsOwnChunksAndSteps) {
  ExpertTimes experts;
  GroupCounts groups;
  EXPECT_THAT(TotalWorkTimes(experts, &groups), IsEmpty());
  experts
      .Request(WorkClass::kDecode, DispatchMode::kLowLatency, DispatchDtype::kFp8,
               LinkPath::kMapped)
      .Observe(microseconds(300));
  experts
      .Request(WorkClass::kDecode, DispatchMode::kNormal, DispatchDtype::kBf16, LinkPath::kMessages)
      .Observe(microseconds(400));
  experts.Of(WorkClass::kDecode, DispatchMode::kNormal).dispatch.Observe(microseconds(30));
  experts.Of(WorkClass::kPrefill, DispatchMode::kNormal).own.Observe(milliseconds(9));
  groups.step.Observe(microseconds(70));
  groups.exchange.peer_wait.Observe(microseconds(20));

  const std::vector<WorkTimes> all = TotalWorkTimes(experts, &groups);

  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, WorkKind::kDecode);
  EXPECT_EQ(all[0].step.count(), 2U);
  EXPECT_EQ(all[0].step.sum, 700'000U);
  EXPECT_EQ(all[0].queue.sum, 30'000U);
  EXPECT_EQ(all[1].kind, WorkKind::kPrefill);
  EXPECT_EQ(all[1].step.sum, 9'000'000U);
  EXPECT_EQ(all[1].queue.count(), 0U);
  EXPECT_EQ(all[2].kind, WorkKind::kLockstep);
  EXPECT_EQ(all[2].step.sum, 70'000U);
  EXPECT_EQ(all[2].queue.sum, 20'000U);
  EXPECT_EQ(TotalWorkTimes(experts, nullptr).size(), 2U);
}

TEST(WorkMeterTest, ReportsWhatIsNewOnceASecond) {
  ExpertTimes experts;
  Histogram& own = experts.Of(WorkClass::kDecode, DispatchMode::kNormal).own;
  WorkMeter meter;
  const auto steps_at = [&](Duration after) {
    const auto times = meter.Take(TotalWorkTimes(experts, nullptr), kStart + after);
    return times.empty() ? 0U : times.at(0).step.count();
  };

  own.Observe(microseconds(50));
  own.Observe(microseconds(50));
  EXPECT_EQ(steps_at(milliseconds(0)), 2U);
  own.Observe(microseconds(50));
  EXPECT_EQ(steps_at(milliseconds(999)), 0U) << "too early";
  EXPECT_EQ(steps_at(milliseconds(1000)), 1U) << "and not lost";
  EXPECT_EQ(steps_at(milliseconds(2000)), 0U);
}

}  // namespace
}  // namespace switchyard
