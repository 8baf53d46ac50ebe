// How rows travel where the source leaves it to the coordinator: processes on CPUs.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "client/status_json.h"
#include "core/base/error.h"
#include "tests/e2e/processes.h"

namespace switchyard {
namespace {

using testing::Batch;
using ::testing::HasSubstr;
using testing::kReadyTimeout;
using testing::RunStep;

constexpr std::int32_t kLayer = 2;
constexpr std::int32_t kTokens = 19;

OpenSessionRequest Order(GroupRequest group) {
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  order.max_tokens = 64;
  order.step_deadline = std::chrono::seconds(5);
  order.group = std::move(group);
  return order;
}

class BindingChoiceE2eTest : public testing::Processes {
 protected:
  // A short time to open, after which OpenWhenReady asks again.
  absl::StatusOr<std::unique_ptr<Client>> ConnectWith(const std::string& transport) {
    ClientOptions options;
    options.timeout = std::chrono::seconds(2);
    return Connect(transport, options);
  }
  // What the session made of a batch; the same bits whatever its binding is.
  static std::vector<float> Answer(MoeSession& session) {
    Batch batch(kTokens, 41);
    SY_EXPECT_OK(RunStep(session, batch, kLayer));
    return batch.y;
  }
  // "p2p: auto is p2p for a source that names no group", as the engine sees it.
  static std::string PathOf(MoeSession& session) {
    const auto report = session.Report(kReadyTimeout);
    if (!report.ok()) return report.status().ToString();
    const auto json = nlohmann::json::parse(ReportJson(*report));
    return json["path"].get<std::string>() + ": " + json["path_reason"].get<std::string>();
  }
};

TEST_F(BindingChoiceE2eTest, SourcesOfAGroupAreRanksOfIt) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto one, ConnectWith("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto two, ConnectWith("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, one->OpenWhenReady(Order({}), kReadyTimeout));
  std::unique_ptr<MoeSession> other;
  std::thread opening([&] {
    auto session =
        two->OpenWhenReady(Order({.name = "engine", .source = 1, .sources = 2}), kReadyTimeout);
    ASSERT_TRUE(session.ok()) << session.status();
    other = *std::move(session);
  });
  const auto group =
      one->OpenWhenReady(Order({.name = "engine", .source = 0, .sources = 2}), kReadyTimeout);
  opening.join();
  SY_ASSERT_OK(group.status());
  ASSERT_NE(other, nullptr);

  EXPECT_EQ(PathOf(*p2p), "p2p: auto is p2p for a source that names no group");
  EXPECT_EQ(PathOf(**group), "collective: auto is collective where the group can be");
  EXPECT_EQ(PathOf(*other), "collective: auto is collective where the group can be");
  EXPECT_EQ(Answer(**group), Answer(*p2p));
  EXPECT_EQ(Answer(*other), Answer(*p2p));
}

TEST_F(BindingChoiceE2eTest, AGroupThatCannotBeIsServedOverP2p) {
  Deploy(3);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectWith("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session,
                          client->OpenWhenReady(Order({.name = "engine"}), kReadyTimeout));
  EXPECT_THAT(PathOf(*session), HasSubstr("experts do not divide by 3 workers"));
  EXPECT_THAT(PathOf(*session), HasSubstr("p2p: "));
  Answer(*session);
}

// One source cannot be in it, as when its memory is on another host: here its client is without the
// worker that its group says it has. The other one waits already.
TEST_F(BindingChoiceE2eTest, ASourceThatCannotBeInItsGroupTakesTheOthersAlong) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto one, ConnectWith("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto two, ConnectWith("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, one->OpenWhenReady(Order({}), kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, p2p->Grant());
  GroupRequest group{.name = "engine", .source = 1, .sources = 2};
  group.hosts = {grant.plan.workers[0].id, ""};
  std::unique_ptr<MoeSession> other;
  std::thread opening([&] {
    auto session = two->OpenWhenReady(Order(group), kReadyTimeout);
    ASSERT_TRUE(session.ok()) << session.status();
    other = *std::move(session);
  });
  GroupRequest of_first = group;
  of_first.source = 0;
  const auto first = one->OpenWhenReady(Order(of_first), kReadyTimeout);
  opening.join();
  SY_ASSERT_OK(first.status());
  ASSERT_NE(other, nullptr);

  EXPECT_THAT(PathOf(**first),
              HasSubstr("p2p: auto is p2p: this source cannot be in group engine: worker "));
  EXPECT_THAT(PathOf(**first), HasSubstr("whose client has none"));
  EXPECT_THAT(PathOf(*other),
              HasSubstr("p2p: auto is p2p: source 0 of group engine cannot be in it: worker "));
  EXPECT_EQ(Answer(**first), Answer(*p2p));
  EXPECT_EQ(Answer(*other), Answer(*p2p));
}

// The gateway's worker is the source then, and no rank of the caller's engine.
TEST_F(BindingChoiceE2eTest, CallersOfAGatewayAreInNoGroup) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectWith("gateway"));
  SY_ASSERT_OK_AND_ASSIGN(
      const auto session,
      client->OpenWhenReady(Order({.name = "engine", .source = 0, .sources = 2}), kReadyTimeout));
  EXPECT_EQ(PathOf(*session), "gateway: ");
  Answer(*session);
}

}  // namespace
}  // namespace switchyard
