// When a watch gives up messages that kernels wait for. The test plays the kernels.
#include "worker/device/cuda/messages/message_watch.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock;

constexpr std::uint32_t kOthers = 0b1011;
constexpr Duration kPatience = milliseconds(500);
constexpr Duration kFirstPatience = milliseconds(1500);

class FakeMessages final : public MessageGroup {
 public:
  [[nodiscard]] const std::string& key() const override { return key_; }
  absl::Status Join(std::span<const std::string> /*keys*/) override { return absl::OkStatus(); }
  absl::Status Carry(const cuda::Messages& /*messages*/, const std::byte* /*outbox*/,
                     std::byte* /*heap*/, cudaStream_t /*stream*/) override {
    return absl::OkStatus();
  }
  void Abort() override {
    gone_at_abort = std::atomic_ref<std::uint32_t>(report.gone).load();
    aborted.store(true);
  }

  cuda::ExchangeReport report;
  std::uint32_t gone_at_abort = 0;
  std::atomic<bool> aborted{false};

 private:
  const std::string key_;
};

class MessageWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    (void)cudaFree(
        nullptr);  // makes the device's context, which takes longer than the tests' times
    auto watch = MessageWatch::Start({.group = &messages_,
                                      .report = &messages_.report,
                                      .others = kOthers,
                                      .device = 0,
                                      .patience = kPatience,
                                      .first_patience = kFirstPatience});
    SY_ASSERT_OK(watch);
    watch_ = *std::move(watch);
  }
  static void Set(std::uint32_t* at, std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(*at).store(value);
  }
  // How long the watch takes from now on; at most `most`.
  Duration TimeToAbort(Duration most) const {
    const auto begin = SteadyTime::now();
    while (!messages_.aborted.load() && SteadyTime::now() - begin < most) std::this_thread::yield();
    return SteadyTime::now() - begin;
  }

  FakeMessages messages_;
  std::unique_ptr<MessageWatch> watch_;
};

TEST_F(MessageWatchTest, MessagesThatDoNotArriveInTimeAreGivenUp) {
  Set(&messages_.report.begun, 1);
  Set(&messages_.report.arrived, 1);
  Set(&messages_.report.begun, 2);

  const Duration took = TimeToAbort(std::chrono::seconds(10));

  EXPECT_GE(took, kPatience - milliseconds(10));
  EXPECT_TRUE(messages_.aborted.load());
  EXPECT_EQ(messages_.gone_at_abort, kOthers) << "known before the waits end";
  EXPECT_EQ(messages_.report.suspects, 0U);
}

TEST_F(MessageWatchTest, TheFirstMessagesMayTakeLonger) {
  Set(&messages_.report.begun, 1);

  EXPECT_GE(TimeToAbort(std::chrono::seconds(10)), kFirstPatience - milliseconds(10));
  EXPECT_TRUE(messages_.aborted.load());
}

TEST_F(MessageWatchTest, NothingIsGivenUpWhileMessagesComeAndGo) {
  const auto end = SteadyTime::now() + 2 * kPatience;
  std::uint32_t number = 0;
  while (SteadyTime::now() < end) {
    Set(&messages_.report.begun, ++number);
    const auto next = SteadyTime::now() + milliseconds(5);
    while (SteadyTime::now() < next) std::this_thread::yield();
    Set(&messages_.report.arrived, number);
  }
  (void)TimeToAbort(2 * kPatience);  // at rest

  EXPECT_FALSE(messages_.aborted.load());
}

TEST_F(MessageWatchTest, ALostRankEndsTheGroupAtOnceAndIsNamed) {
  watch_->Lose(1);

  EXPECT_LT(TimeToAbort(std::chrono::seconds(10)), kPatience);
  EXPECT_EQ(messages_.gone_at_abort, kOthers);
  EXPECT_EQ(messages_.report.suspects, 0b10U);
}

TEST_F(MessageWatchTest, TheFirstLostRankIsTheReason) {
  for (const int rank : {3, 0, 1}) watch_->Lose(rank);

  (void)TimeToAbort(std::chrono::seconds(10));

  EXPECT_EQ(messages_.report.suspects, 0b1000U);
}

TEST_F(MessageWatchTest, ThisRankIsNotLost) {
  watch_->Lose(2);

  (void)TimeToAbort(kPatience);

  EXPECT_FALSE(messages_.aborted.load());
}

}  // namespace
}  // namespace switchyard
