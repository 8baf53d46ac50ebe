#include "worker/source/p2p/credits.h"

#include <optional>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using Answer = CreditTable::Answer;

constexpr TimePoint kNow{std::chrono::seconds(2)};

ChunkKey Key(std::uint64_t step, std::uint16_t chunk = 0) {
  return {StepId{step}, LayerId{2}, chunk, 0};
}

// Reserves a credit and sends a chunk with it.
void Send(CreditTable& credits, const ChunkKey& key) {
  const std::optional<std::uint32_t> credit = credits.Reserve();
  ASSERT_TRUE(credit.has_value());
  credits.Send(*credit, key);
}

TEST(CreditTableTest, GivesEachCreditOnceAndNoMore) {
  CreditTable credits(2);

  EXPECT_EQ(credits.Reserve(), 0U);
  EXPECT_EQ(credits.Reserve(), 1U);
  EXPECT_EQ(credits.Reserve(), std::nullopt);
  EXPECT_EQ(credits.free(), 0U);
}

// A worker can guess the key of a chunk that is still being encoded.
TEST(CreditTableTest, AReservedCreditTakesNoReplyAndIsFreeWhenNothingIsSent) {
  CreditTable credits(1);
  ASSERT_EQ(credits.Reserve(), 0U);

  EXPECT_EQ(credits.Accept(0, Key(0), kNow), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, ChunkKey{}, kNow), Answer::kUnexpected);
  credits.GiveUp(0, TimePoint{});
  EXPECT_EQ(credits.free(), 0U);
  EXPECT_EQ(credits.OwedSince(), std::nullopt);
  credits.Release(0);

  EXPECT_EQ(credits.free(), 1U);
}

// R47: whatever the order of replies, a credit comes back once.
TEST(CreditTableTest, IsFreeOnlyAfterItsReplyWasRead) {
  CreditTable credits(1);
  Send(credits, Key(1));

  EXPECT_EQ(credits.Accept(0, Key(1), kNow), Answer::kAccepted);
  EXPECT_EQ(credits.free(), 0U);
  credits.Release(0);

  EXPECT_EQ(credits.free(), 1U);
}

TEST(CreditTableTest, AcceptsAReplyOnce) {
  CreditTable credits(1);
  Send(credits, Key(1));
  ASSERT_EQ(credits.Accept(0, Key(1), kNow), Answer::kAccepted);

  EXPECT_EQ(credits.Accept(0, Key(1), kNow), Answer::kUnexpected);
  credits.Release(0);
  EXPECT_EQ(credits.Accept(0, Key(1), kNow), Answer::kUnexpected);
}

TEST(CreditTableTest, RefusesAReplyOfAnotherStepLayerChunkOrAttempt) {
  CreditTable credits(1);
  Send(credits, {StepId{5}, LayerId{2}, 1, 0});

  EXPECT_EQ(credits.Accept(0, {StepId{6}, LayerId{2}, 1, 0}, kNow), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{3}, 1, 0}, kNow), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 0, 0}, kNow), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 1, 1}, kNow), Answer::kUnexpected);
  EXPECT_EQ(credits.Accept(0, {StepId{5}, LayerId{2}, 1, 0}, kNow), Answer::kAccepted);
}

TEST(CreditTableTest, KeepsAGivenUpCreditUntilTheLateReply) {
  CreditTable credits(2);
  const TimePoint early{std::chrono::seconds(1)};
  const TimePoint late{std::chrono::seconds(2)};
  Send(credits, Key(1));
  Send(credits, Key(2));

  credits.GiveUp(1, late);
  credits.GiveUp(0, early);

  EXPECT_EQ(credits.free(), 0U);
  EXPECT_EQ(credits.OwedSince(), early);
  EXPECT_EQ(credits.Accept(0, Key(1), kNow), Answer::kLate);
  EXPECT_EQ(credits.free(), 1U);
  EXPECT_EQ(credits.OwedSince(), late);
}

TEST(CreditTableTest, GivingUpAnAnsweredCreditFreesItAtOnce) {
  CreditTable credits(1);
  Send(credits, Key(1));
  credits.Accept(0, Key(1), kNow);

  credits.GiveUp(0, TimePoint{});

  EXPECT_EQ(credits.free(), 1U);
  EXPECT_EQ(credits.OwedSince(), std::nullopt);
}

TEST(CreditTableTest, OnlyRepliesToWhatWasSentBeforeShowThatTheWorkerComesCloser) {
  CreditTable credits(3);
  const TimePoint early{std::chrono::seconds(1)};
  Send(credits, Key(1));
  Send(credits, Key(2));
  Send(credits, Key(3));
  credits.GiveUp(1, early);

  credits.Accept(2, Key(3), kNow);
  EXPECT_EQ(credits.OwedSince(), early);
  credits.Accept(0, Key(1), kNow);
  EXPECT_EQ(credits.OwedSince(), kNow);
}

}  // namespace
}  // namespace switchyard
