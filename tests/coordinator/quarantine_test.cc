#include "coordinator/quarantine.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::seconds;

class QuarantineTest : public ::testing::Test {
 protected:
  QuarantineTest() {
    options_.quarantine_first = seconds(5);
    options_.quarantine_last = seconds(30);
  }
  void StrikeTimes(int count) {
    for (int i = 0; i < count; ++i) quarantine_.Strike("w1", "disk error", now_);
  }
  // How long w1 is excluded from `now_` on.
  Duration Exclusion() const {
    Duration excluded{};
    while (quarantine_.IsExcluded("w1", now_ + excluded)) excluded += seconds(1);
    return excluded;
  }

  CoordinatorOptions options_;
  TimePoint now_{seconds(100)};
  Quarantine quarantine_{&options_};
};

TEST_F(QuarantineTest, OneStrikeDoesNotExclude) {
  StrikeTimes(1);

  EXPECT_FALSE(quarantine_.IsExcluded("w1", now_));
  EXPECT_EQ(quarantine_.ReasonFor("w1"), "disk error");
}

TEST_F(QuarantineTest, ExcludesFromTheSecondStrikeForTimesThatDoubleUpToTheLast) {
  struct Row {
    int strikes;
    Duration excluded;
  };
  for (const Row& row : {Row{2, seconds(5)}, Row{3, seconds(10)}, Row{4, seconds(20)},
                         Row{5, seconds(30)}, Row{60, seconds(30)}}) {
    SCOPED_TRACE(row.strikes);
    quarantine_.Clear("w1");
    StrikeTimes(row.strikes);
    EXPECT_EQ(Exclusion(), row.excluded);
  }
}

TEST_F(QuarantineTest, ConcernsOnlyTheWorkerThatFailed) {
  StrikeTimes(2);

  EXPECT_FALSE(quarantine_.IsExcluded("w2", now_));
  EXPECT_EQ(quarantine_.ReasonFor("w2"), "");
}

TEST_F(QuarantineTest, ReportsEachExclusionThatEndsOnceAndKeepsTheStrikes) {
  StrikeTimes(2);

  EXPECT_FALSE(quarantine_.EndExclusions(now_ + seconds(4)));
  EXPECT_TRUE(quarantine_.EndExclusions(now_ + seconds(5)));
  EXPECT_FALSE(quarantine_.EndExclusions(now_ + seconds(6)));

  StrikeTimes(1);
  EXPECT_EQ(Exclusion(), seconds(10)) << "the third strike, not the first";
}

TEST_F(QuarantineTest, ClearVoidsTheStrikes) {
  StrikeTimes(2);
  quarantine_.Clear("w1");
  EXPECT_FALSE(quarantine_.IsExcluded("w1", now_));

  StrikeTimes(1);
  EXPECT_FALSE(quarantine_.IsExcluded("w1", now_));
}

TEST_F(QuarantineTest, ForgetsOldStrikesButNoExclusion) {
  StrikeTimes(2);
  quarantine_.ForgetOld(now_ + seconds(31));
  EXPECT_EQ(quarantine_.ReasonFor("w1"), "disk error") << "its exclusion was never ended";

  quarantine_.EndExclusions(now_ + seconds(31));
  quarantine_.ForgetOld(now_ + seconds(30));
  EXPECT_EQ(quarantine_.ReasonFor("w1"), "disk error");
  quarantine_.ForgetOld(now_ + seconds(31));
  EXPECT_EQ(quarantine_.ReasonFor("w1"), "");
}

}  // namespace
}  // namespace switchyard
