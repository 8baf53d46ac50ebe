// What messages of a step are, and what becomes of a step whose messages do not come. That they
// give what stores do is among the tests of low_latency_test.cc.
#include "worker/device/cuda/exchange/messages.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/cuda/exchange_group.h"

namespace switchyard::cuda {
namespace {

using testing::ExchangeGroup;
using testing::RandomTokens;

constexpr ExchangeShape kShape = {.ranks = 4,
                                  .tokens_max = 40,
                                  .hidden = 640,
                                  .top_k = 5,
                                  .experts_of_rank = 8,
                                  .expert_ranks = 3,
                                  .formats = ExchangeFormat::kFp8,
                                  .by_messages = true};

ExchangeRank RankOf(int rank) {
  return {.shape = kShape, .layout = LayoutOf(kShape), .rank = rank};
}

std::vector<std::int64_t> SizesFor(int peer, const MessageParts& parts) {
  std::vector<std::int64_t> sizes;
  for (const MessagePart& part : parts) {
    if (part.peer == peer) sizes.push_back(part.bytes);
  }
  return sizes;
}

class MessagesTest : public ::testing::TestWithParam<Messages (*)(const ExchangeRank&, int)> {};

TEST_P(MessagesTest, WhatARankSendsIsWhatTheOtherReceives) {
  for (const int cover : {1, 7, kShape.tokens_max}) {
    for (int from = 0; from < kShape.ranks; ++from) {
      for (int to = 0; to < kShape.ranks; ++to) {
        const auto sent = SizesFor(to, GetParam()(RankOf(from), cover).sent);
        const auto received = SizesFor(from, GetParam()(RankOf(to), cover).received);
        EXPECT_EQ(sent, received) << from << " to " << to << ", " << cover;
        EXPECT_TRUE(from != to || sent.empty());
      }
    }
  }
}

TEST_P(MessagesTest, PartsLieInTheirMemoryAndApart) {
  const ExchangeLayout layout = LayoutOf(kShape);
  for (int rank = 0; rank < kShape.ranks; ++rank) {
    const Messages messages = GetParam()(RankOf(rank), kShape.tokens_max);
    std::vector<std::pair<std::int64_t, std::int64_t>> received;
    for (const MessagePart& part : messages.received) {
      received.emplace_back(part.at, part.at + part.bytes);
    }
    std::sort(received.begin(), received.end());
    for (std::size_t i = 0; i < received.size(); ++i) {
      EXPECT_LE(received[i].second,
                i + 1 < received.size() ? received[i + 1].first : HeapBytes(kShape, layout, rank));
    }
    for (const MessagePart& part : messages.sent) {
      EXPECT_LE(part.at + part.bytes, layout.bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfAStep, MessagesTest,
                         ::testing::Values(&RowMessages, &AnswerMessages, &SealMessages),
                         [](const auto& of) {
                           return of.param == &RowMessages      ? "Rows"
                                  : of.param == &AnswerMessages ? "Answers"
                                                                : "Seals";
                         });

class GivenUpRankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    devices_ = devices;
  }

  int devices_ = 0;
};

// The ranks of kShape, with reports.
class ReportingGroup {
 public:
  explicit ReportingGroup(int devices) : group_(kShape, devices, kPatience) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocHost(&memory, kShape.ranks * sizeof(ExchangeReport)), cudaSuccess);
    reports_ = new (memory) ExchangeReport[static_cast<std::size_t>(kShape.ranks)];
    std::mt19937_64 random(5);
    for (int r = 0; r < kShape.ranks; ++r) {
      group_.SetReport(r, &reports_[r]);
      group_.SetTokens(r, RandomTokens(kShape, 16, 0.0, random), 16);
    }
    group_.StepByMessages();
    for (int r = 0; r < kShape.ranks; ++r) {
      EXPECT_EQ(reports_[r].fault, 0U);
      EXPECT_EQ(reports_[r].begun, 2U) << "the answers of step 0";
      EXPECT_EQ(reports_[r].arrived, 2U);
    }
  }
  ~ReportingGroup() { cudaFreeHost(reports_); }
  ReportingGroup(const ReportingGroup&) = delete;
  ReportingGroup& operator=(const ReportingGroup&) = delete;

  void GiveUpAllOthers(int rank, std::uint32_t suspects = 0) {
    std::atomic_ref<std::uint32_t>(reports_[rank].suspects).store(suspects);
    std::atomic_ref<std::uint32_t>(reports_[rank].gone).store(0b1111U & ~(1U << rank));
  }
  ExchangeGroup& group() { return group_; }
  const ExchangeReport& report(int rank) const { return reports_[rank]; }
  void ExpectFault(int rank, int named) const {
    EXPECT_EQ(reports_[rank].fault, static_cast<std::uint32_t>(ExchangeFault::kTimeout)) << rank;
    EXPECT_EQ(reports_[rank].step, 1U) << rank;
    EXPECT_EQ(reports_[rank].rank, static_cast<std::uint32_t>(named)) << rank;
    EXPECT_EQ(reports_[rank].arrived, 4U) << rank;
  }

 private:
  // A wait that nobody ends fails these tests by its length.
  static constexpr std::uint64_t kPatience = 100'000'000'000;

  ExchangeGroup group_;
  ExchangeReport* reports_ = nullptr;
};

TEST_F(GivenUpRankTest, AStepWithoutItsMessagesIsNoResultAndNamesIt) {
  ReportingGroup of(devices_);
  const auto begin = std::chrono::steady_clock::now();

  of.group().StepByMessages(2, Message::kRows, [&of] {
    for (int r = 0; r < kShape.ranks; ++r) of.GiveUpAllOthers(r);
  });

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (const int r : {0, 1, 3}) of.ExpectFault(r, 2);
}

// Messages may all be there, and yet be whole only by chance.
TEST_F(GivenUpRankTest, AStepWhoseMessagesCameIsNoResultEither) {
  for (const Message at : {Message::kRows, Message::kAnswers}) {
    ReportingGroup of(devices_);

    of.group().StepByMessages(-1, at, [&of] {
      for (int r = 0; r < kShape.ranks; ++r) of.GiveUpAllOthers(r, r == 3 ? 0 : 0b1000);
    });

    for (const int r : {0, 1, 2}) of.ExpectFault(r, 3);
    of.ExpectFault(3, 0);
  }
}

// Goal: a rank that has waited for nobody learns that another has given it up, whose messages may
// look whole and not be.
TEST_F(GivenUpRankTest, TheOthersOfARankThatHasGivenUpLearnIt) {
  for (const Message at : {Message::kRows, Message::kAnswers}) {
    ReportingGroup of(devices_);

    of.group().StepByMessages(-1, at, [&of] { of.GiveUpAllOthers(1, 0b1); });

    for (const int r : {0, 2, 3}) of.ExpectFault(r, 1);
    of.ExpectFault(1, 0);
  }
}

}  // namespace
}  // namespace switchyard::cuda
