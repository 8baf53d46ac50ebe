#include "worker/source/p2p/credits.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using Answer = CreditTable::Answer;

ChunkKey Key(std::uint64_t step, std::uint16_t chunk = 0) {
  return {StepId{step}, LayerId{2}, chunk, 0};
}

TEST(CreditTableTest, GivesEachCreditOnceAndNoMore) {
  CreditTable credits(2);

  EXPECT_EQ(credits.Send(Key(1)), 0U);
  EXPECT_EQ(credits.Send(Key(1, 1)), 1U);
  EXPECT_EQ(credits.Send(Key(2)), std::nullopt);
  EXPECT_EQ(credits.free(), 0U);
}

// R47: whatever the order of replies, a credit comes back once.
TEST(CreditTableTest, IsFreeOnlyAfterItsReplyWasRead) {
  CreditTable credits(1);
  credits.Send(Key(1));

  EXPECT_EQ(credits.Accept(0, Key(1)), Answer::kAccepted);
  EXPECT_EQ(credits.free(), 0U);
  credits.Release(0);

  EXPECT_EQ(credits.free(), 1U);
}

TEST(CreditTableTest, AcceptsAReplyOnce) {
  CreditTable credits(1);
  credits.Send(Key(1));
  ASSERT_EQ(credits.Accept(0, Key(1)), Answer::kAccepted);

  EXPECT_EQ(credits.Accept(0, Key(1)), Answer::kUnexpected);
  credits.Release(0);
  EXPECT_EQ(credits.Accept(0, Key(1)), Answer::kUnexpected);
}

TEST(CreditTableTest, RefusesAReplyOfAnotherStepLayerChunkOrAttempt) {
  CreditTable credits(1);
  credits.Send({StepId{5}, LayerId{2}, 1, 0});

  EXPECT_EQ(credits.Accept(0, {StepId{6}, LayerId{2}, 1, 0}), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{3}, 1, 0}), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 0, 0}), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 1, 1}), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 1, 0}), Answer::kAccepted);
}

TEST(CreditTableTest, KeepsAGivenUpCreditUntilTheLateReply) {
  CreditTable credits(2);
  const TimePoint early{std::chrono::seconds(1)};
  const TimePoint late{std::chrono::seconds(2)};
  credits.Send(Key(1));
  credits.Send(Key(2));

  credits.GiveUp(1, late);
  credits.GiveUp(0, early);

  EXPECT_EQ(credits.free(), 0U);
  EXPECT_EQ(credits.OldestGivenUp(), early);
  EXPECT_EQ(credits.Accept(0, Key(1)), Answer::kLate);
  EXPECT_EQ(credits.free(), 1U);
  EXPECT_EQ(credits.OldestGivenUp(), late);
}

TEST(CreditTableTest, GivingUpAnAnsweredCreditFreesItAtOnce) {
  CreditTable credits(1);
  credits.Send(Key(1));
  credits.Accept(0, Key(1));

  credits.GiveUp(0, TimePoint{});

  EXPECT_EQ(credits.free(), 1U);
  EXPECT_EQ(credits.OldestGivenUp(), std::nullopt);
}

}  // namespace
}  // namespace switchyard
