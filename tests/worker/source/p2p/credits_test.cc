#include "worker/source/p2p/credits.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using Answer = CreditTable::Answer;

PairKey Key(std::uint64_t step, std::uint16_t chunk = 0) {
  return {StepId{step}, LayerId{2}, chunk, 0};
}

TEST(CreditTableTest, GivesEachPairOnceAndNoMore) {
  CreditTable pairs(2);

  EXPECT_EQ(pairs.Send(Key(1)), 0U);
  EXPECT_EQ(pairs.Send(Key(1, 1)), 1U);
  EXPECT_EQ(pairs.Send(Key(2)), std::nullopt);
  EXPECT_EQ(pairs.free(), 0U);
}

// R47: whatever the order of replies, a pair comes back once.
TEST(CreditTableTest, IsFreeOnlyAfterItsReplyWasRead) {
  CreditTable pairs(1);
  pairs.Send(Key(1));

  EXPECT_EQ(pairs.Accept(0, Key(1)), Answer::kAccepted);
  EXPECT_EQ(pairs.free(), 0U);
  pairs.Release(0);

  EXPECT_EQ(pairs.free(), 1U);
}

TEST(CreditTableTest, AcceptsAReplyOnce) {
  CreditTable pairs(1);
  pairs.Send(Key(1));
  ASSERT_EQ(pairs.Accept(0, Key(1)), Answer::kAccepted);

  EXPECT_EQ(pairs.Accept(0, Key(1)), Answer::kUnexpected);
  pairs.Release(0);
  EXPECT_EQ(pairs.Accept(0, Key(1)), Answer::kUnexpected);
}

TEST(CreditTableTest, RefusesAReplyOfAnotherStepLayerChunkOrAttempt) {
  CreditTable pairs(1);
  pairs.Send({StepId{5}, LayerId{2}, 1, 0});

  EXPECT_EQ(pairs.Accept(0, {StepId{6}, LayerId{2}, 1, 0}), Answer::kUnexpected);
  EXPECT_EQ(pairs.Accept(0, {StepId{5}, LayerId{3}, 1, 0}), Answer::kUnexpected);
  EXPECT_EQ(pairs.Accept(0, {StepId{5}, LayerId{2}, 0, 0}), Answer::kUnexpected);
  EXPECT_EQ(pairs.Accept(0, {StepId{5}, LayerId{2}, 1, 1}), Answer::kUnexpected);
  EXPECT_EQ(pairs.Accept(0, {StepId{5}, LayerId{2}, 1, 0}), Answer::kAccepted);
}

TEST(CreditTableTest, KeepsAGivenUpPairUntilTheLateReply) {
  CreditTable pairs(2);
  const TimePoint early{std::chrono::seconds(1)};
  const TimePoint late{std::chrono::seconds(2)};
  pairs.Send(Key(1));
  pairs.Send(Key(2));

  pairs.GiveUp(1, late);
  pairs.GiveUp(0, early);

  EXPECT_EQ(pairs.free(), 0U);
  EXPECT_EQ(pairs.OldestGivenUp(), early);
  EXPECT_EQ(pairs.Accept(0, Key(1)), Answer::kLate);
  EXPECT_EQ(pairs.free(), 1U);
  EXPECT_EQ(pairs.OldestGivenUp(), late);
}

TEST(CreditTableTest, GivingUpAnAnsweredPairFreesItAtOnce) {
  CreditTable pairs(1);
  pairs.Send(Key(1));
  pairs.Accept(0, Key(1));

  pairs.GiveUp(0, TimePoint{});

  EXPECT_EQ(pairs.free(), 1U);
  EXPECT_EQ(pairs.OldestGivenUp(), std::nullopt);
}

}  // namespace
}  // namespace switchyard
