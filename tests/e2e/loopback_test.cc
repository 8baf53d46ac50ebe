// The whole system in one process: the real coordinator, real workers and a real client, joined by
// the loopback transport, on the shipped model, against the double reference.
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "harness/in_process_deployment.h"
#include "tests/e2e/batch.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using testing::ReferenceOf;
using testing::RunStep;

class LoopbackTest : public ::testing::Test {
 protected:
  void Deploy(std::int32_t workers) {
    InProcessOptions options;
    options.checkpoint = testing::kShippedModel;
    options.workers = workers;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(DispatchMode mode) {
    OpenSessionRequest order;
    order.phase = Phase::kMixed;
    order.mode = mode;
    return client_->OpenWhenReady(order, std::chrono::seconds(20));
  }

  Logger logger_{"test", LogLevel::kWarn};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;  // goes before the deployment
};

TEST_F(LoopbackTest, BothModesEqualTheReference) {
  Deploy(3);
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(mode));
    Batch batch(40, 7);

    SY_ASSERT_OK(RunStep(*session, batch, 2));

    EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, 2)), 1.5e-5) << DispatchModeName(mode);
  }
}

// Workers of this process are reached by direct calls, which form no groups.
TEST_F(LoopbackTest, ACollectiveSessionIsRefused) {
  Deploy(2);
  SY_ASSERT_OK(Open(DispatchMode::kLowLatency).status());
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  order.binding = BindingChoice::kCollective;

  EXPECT_THAT(client_->Open(order).status(),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

TEST_F(LoopbackTest, LowLatencyIsBitEqualForEveryPlacement) {
  std::vector<float> first;
  for (const std::int32_t workers : {1, 2, 3, 4, 5}) {
    client_.reset();
    deployment_.reset();
    Deploy(workers);
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
    Batch batch(33, 11);
    SY_ASSERT_OK(RunStep(*session, batch, 1));
    if (first.empty()) first = batch.y;

    EXPECT_EQ(std::memcmp(batch.y.data(), first.data(), first.size() * sizeof(float)), 0)
        << workers << " workers";
  }
}

// R43
TEST_F(LoopbackTest, AlternatingModesFiftyTimesGivesIdenticalResults) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto normal, Open(DispatchMode::kNormal));
  SY_ASSERT_OK_AND_ASSIGN(const auto low_latency, Open(DispatchMode::kLowLatency));
  std::vector<float> first_normal;
  std::vector<float> first_low_latency;
  for (int round = 0; round < 50; ++round) {
    Batch one(5, 3);
    SY_ASSERT_OK(RunStep(*normal, one, 0));
    Batch two(5, 3);
    SY_ASSERT_OK(RunStep(*low_latency, two, 0));
    if (round == 0) {
      first_normal = one.y;
      first_low_latency = two.y;
    }
    ASSERT_EQ(one.y, first_normal) << round;
    ASSERT_EQ(two.y, first_low_latency) << round;
  }
}

// R67
TEST_F(LoopbackTest, ADeadWorkerIsNamedAndTheSessionGoesOnBitEqualAfterTheReplan) {
  Deploy(3);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  Batch before(20, 5);
  SY_ASSERT_OK(RunStep(*session, before, 3));

  deployment_->KillWorker(1);

  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Batch after(20, 5);
  absl::Status status = RunStep(*session, after, 3);
  while (!status.ok() && std::chrono::steady_clock::now() < until) {
    ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(MetadataOf(status).at("worker"), "w1") << status;
    EXPECT_EQ(MetadataOf(status).at("layer"), "3");
    status = RunStep(*session, after, 3);
  }
  SY_ASSERT_OK(status);
  EXPECT_EQ(after.y, before.y);
}

TEST_F(LoopbackTest, AJoiningWorkerIsTakenInWhileTheSessionRuns) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  Batch before(20, 5);
  SY_ASSERT_OK(RunStep(*session, before, 3));

  SY_ASSERT_OK(deployment_->AddWorker());

  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::size_t workers = 0;
  while (workers < 3 && std::chrono::steady_clock::now() < until) {
    Batch batch(20, 5);
    SY_ASSERT_OK(RunStep(*session, batch, 3));
    ASSERT_EQ(batch.y, before.y);
    SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
    workers = grant.plan.workers.size();
  }
  EXPECT_EQ(workers, 3U);
}

TEST_F(LoopbackTest, AnUnknownModelIsNotFound) {
  Deploy(1);
  SY_ASSERT_OK(Open(DispatchMode::kNormal));
  OpenSessionRequest order;
  order.model = "no-such-model";

  EXPECT_THAT(client_->Open(order), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

}  // namespace
}  // namespace switchyard
