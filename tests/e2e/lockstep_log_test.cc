// Groups of the same workers share one log of steps: what one of them does when others have made
// thousands of steps meanwhile, and steps of more rounds than a device's queue holds.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/dispatch_mode.h"
#include "core/session_messages.h"
#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/testing/status_matchers.h"
#include "worker/collective/step_log.h"
#include "worker/device/host/host_stream.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::RunStep;

constexpr std::int32_t kLayer = 2;
constexpr std::int32_t kTokensAtOnce = 1024;  // of a group of CPUs

OpenSessionRequest OrderOf(std::int32_t tokens, DispatchMode mode, GroupRequest group) {
  OpenSessionRequest order;
  order.phase = Phase::kMixed;
  order.mode = mode;
  order.max_tokens = tokens;
  order.binding = BindingChoice::kCollective;
  order.step_deadline = std::chrono::seconds(10);
  order.group = std::move(group);
  return order;
}

class LockstepLogTest : public testing::Processes {
 protected:
  // The sessions of all sources of one group, each with a client of its own.
  void OpenSources(std::int32_t sources) {
    sessions_.resize(static_cast<std::size_t>(sources));
    for (std::int32_t s = 0; s < sources; ++s) {
      SY_ASSERT_OK_AND_ASSIGN(auto client, Connect("auto"));
      clients_.push_back(std::move(client));
    }
    std::vector<std::thread> opening;
    for (std::int32_t s = 0; s < sources; ++s) {
      opening.emplace_back([this, s, sources] {
        const auto at = static_cast<std::size_t>(s);
        auto session = clients_[at]->OpenWhenReady(
            OrderOf(8, DispatchMode::kLowLatency,
                    {.name = "engine", .source = s, .sources = sources}),
            testing::kReadyTimeout);
        ASSERT_TRUE(session.ok()) << session.status();
        sessions_[at] = *std::move(session);
      });
    }
    for (std::thread& thread : opening) thread.join();
    for (const auto& session : sessions_) ASSERT_NE(session, nullptr);
  }
  // More steps of a group of its own than the log holds.
  void MakeMoreStepsThanTheLogHolds() {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
    SY_ASSERT_OK_AND_ASSIGN(
        const auto session,
        client->OpenWhenReady(OrderOf(8, DispatchMode::kLowLatency, {}), testing::kReadyTimeout));
    Batch batch(1, 43);
    for (std::uint32_t step = 0; step < StepLog::kSteps + 100; ++step) {
      SY_ASSERT_OK(RunStep(*session, batch, kLayer)) << "step " << step;
    }
  }

  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<MoeSession>> sessions_;
};

TEST_F(LockstepLogTest, AGroupThatRestsMayMakeItsNextStepAtAnyTime) {
  Deploy(2);
  ASSERT_NO_FATAL_FAILURE(OpenSources(1));
  Batch before(3, 41);
  SY_ASSERT_OK(RunStep(*sessions_[0], before, kLayer));

  ASSERT_NO_FATAL_FAILURE(MakeMoreStepsThanTheLogHolds());

  Batch after(3, 41);
  SY_ASSERT_OK(RunStep(*sessions_[0], after, kLayer));
  EXPECT_EQ(std::memcmp(after.y.data(), before.y.data(), after.y.size() * sizeof(float)), 0);
}

// A source without tokens follows the log as fast as another group writes it.
TEST_F(LockstepLogTest, SourcesThatRestAreNotBehind) {
  Deploy(2);
  ASSERT_NO_FATAL_FAILURE(OpenSources(2));
  Batch before(3, 41);
  SY_ASSERT_OK(RunStep(*sessions_[0], before, kLayer));

  ASSERT_NO_FATAL_FAILURE(MakeMoreStepsThanTheLogHolds());

  for (const auto& session : sessions_) {
    Batch after(3, 41);
    SY_ASSERT_OK(RunStep(*session, after, kLayer));
    EXPECT_EQ(std::memcmp(after.y.data(), before.y.data(), after.y.size() * sizeof(float)), 0);
  }
}

// R61. The step waits for room; no rank of the group is left a round behind, which would give it
// the experts of another layer.
TEST_F(LockstepLogTest, AStepMayHaveMoreRoundsThanTheQueueOfADevice) {
  constexpr std::int32_t kTokens =
      kTokensAtOnce * (static_cast<std::int32_t>(HostStream::kQueuedMax) + 6);
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(
      const auto session,
      client->OpenWhenReady(OrderOf(kTokens, DispatchMode::kNormal, {}), testing::kReadyTimeout));
  // Each round has the same tokens, so that one of them is the reference of all.
  const Batch one(kTokensAtOnce, 41);
  Batch many = one;
  many.tokens = kTokens;
  while (many.ids.size() < static_cast<std::size_t>(kTokens) * testing::kTopK) {
    many.x.insert(many.x.end(), one.x.begin(), one.x.end());
    many.ids.insert(many.ids.end(), one.ids.begin(), one.ids.end());
    many.weights.insert(many.weights.end(), one.weights.begin(), one.weights.end());
    many.y.insert(many.y.end(), one.y.begin(), one.y.end());
  }
  SY_ASSERT_OK(RunStep(*session, many, kLayer));
  Batch alone = one;
  SY_ASSERT_OK(RunStep(*session, alone, kLayer + 1));
  Batch again = one;
  SY_ASSERT_OK(RunStep(*session, again, kLayer));

  for (std::size_t at = 0; at < many.y.size(); at += again.y.size()) {
    ASSERT_EQ(std::memcmp(&many.y[at], again.y.data(), again.y.size() * sizeof(float)), 0)
        << "from value " << at;
  }
  EXPECT_NE(std::memcmp(alone.y.data(), again.y.data(), again.y.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace switchyard
