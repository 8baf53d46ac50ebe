#include "core/work_times.h"

#include <chrono>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

WorkTimes Times(WorkKind kind, int steps, Duration each) {
  WorkTimes times{.kind = kind};
  for (int i = 0; i < steps; ++i) times.step.Observe(each);
  return times;
}

TEST(WorkTimesTest, WhatIsNewIsTheDifferenceOfEachKind) {
  const WorkTimes decode = Times(WorkKind::kDecode, 3, milliseconds(1));
  const WorkTimes prefill = Times(WorkKind::kPrefill, 2, milliseconds(90));

  EXPECT_THAT(TimesSince({}, {decode}), ElementsAre(decode));
  EXPECT_THAT(TimesSince({decode}, {Times(WorkKind::kDecode, 8, milliseconds(1)), prefill}),
              ElementsAre(Times(WorkKind::kDecode, 5, milliseconds(1)), prefill));
  EXPECT_THAT(TimesSince({decode, prefill}, {decode, prefill}), IsEmpty());
  // Of no process that there is, and still no number near 2^64.
  EXPECT_THAT(TimesSince({Times(WorkKind::kDecode, 9, milliseconds(1))}, {decode}), IsEmpty());
}

// A batch that has begun and not ended.
TEST(WorkTimesTest, AQueueWithoutAStepIsKept) {
  WorkTimes waited{.kind = WorkKind::kPrefill};
  waited.queue.Observe(milliseconds(7));

  EXPECT_THAT(TimesSince({}, {waited}), ElementsAre(waited));
}

TEST(WorkTimesTest, SumsThatDoNotFitStayAtTheLargestNumber) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  WorkTimes much = Times(WorkKind::kDecode, 1, milliseconds(1));
  for (std::uint64_t& bucket : much.step.buckets) bucket = kMost - 1;
  much.step.sum = kMost - 1;
  std::vector<WorkTimes> sums;

  AddSaturating(&sums, much);
  AddSaturating(&sums, much);
  AddSaturating(&sums, Times(WorkKind::kLockstep, 1, milliseconds(1)));

  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].step.buckets[3], kMost);
  EXPECT_EQ(sums[0].step.sum, kMost);
  EXPECT_EQ(sums[1], Times(WorkKind::kLockstep, 1, milliseconds(1)));
}

}  // namespace
}  // namespace switchyard
