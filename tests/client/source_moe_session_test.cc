// What a session asks of its workers. That its steps are right is tests/e2e/loopback_test.cc's.
#include "client/source_moe_session.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

// Answers with the endpoint as the worker's name.
class CountingChannel final : public SessionChannel {
 public:
  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& order,
                                           Duration timeout) override {
    return rest_.OpenSession(order, timeout);
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    return rest_.CloseSession(session, timeout);
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& order, WatchSink* sink) override {
    return rest_.Watch(order, sink);
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& order,
                                       AttachSink* sink) override {
    return rest_.Attach(endpoint, order, sink);
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override {
    EXPECT_EQ(session, (SessionId{4, 5}));
    EXPECT_EQ(timeout, std::chrono::seconds(3));
    if (endpoint == lost) {
      return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "connection refused",
                       {{"endpoint", endpoint}});
    }
    return SessionCounters{endpoint, {}};
  }

  std::string lost;

 private:
  testing::ScriptedChannel rest_;
};

Plan ThreeWorkers() {
  Plan plan;
  for (const std::string id : {"w2", "w0", "w1"}) {
    plan.workers.push_back({id, {1, 1}, id + ":1", DeviceKind::kCpu, "x"});
  }
  return plan;
}

TEST(AskWorkersTest, AnswersInTheOrderOfThePlan) {
  CountingChannel channel;

  SY_ASSERT_OK_AND_ASSIGN(
      const std::vector<SessionCounters> counters,
      AskWorkers(channel, ThreeWorkers(), SessionId{4, 5}, std::chrono::seconds(3)));

  std::vector<std::string> workers;
  for (const SessionCounters& worker : counters) workers.push_back(worker.worker_id);
  EXPECT_THAT(workers, ::testing::ElementsAre("w2:1", "w0:1", "w1:1"));
}

TEST(AskWorkersTest, AWorkerThatCannotBeAskedFailsTheCallByName) {
  CountingChannel channel;
  channel.lost = "w0:1";

  const auto counters =
      AskWorkers(channel, ThreeWorkers(), SessionId{4, 5}, std::chrono::seconds(3));

  EXPECT_THAT(counters, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(counters.status().message()), HasSubstr("counters of worker w0"));
}

}  // namespace
}  // namespace switchyard
