// Collective sessions of processes: sources and workers are ranks of a group that makes each step
// in lockstep, on CPUs. The same drills run on GPUs elsewhere (scripts/cuda-acceptance).
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/resolve/collective_group.h"
#include "services/channels/grpc_channels.h"
#include "services/grpc/grpc_server.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"
#include "worker/collective/step_log.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::ReferenceOf;
using testing::RunStep;

constexpr double kPooledDiffMax = 1.5e-5;
constexpr std::int32_t kLayer = 2;

OpenSessionRequest Order(DispatchMode mode, BindingChoice binding) {
  OpenSessionRequest order;
  order.phase = Phase::kMixed;
  order.mode = mode;
  order.max_tokens = 256;
  order.binding = binding;
  order.step_deadline = std::chrono::seconds(5);
  return order;
}

OpenSessionRequest OrderOfSource(std::int32_t source, std::int32_t sources) {
  OpenSessionRequest order = Order(DispatchMode::kLowLatency, BindingChoice::kCollective);
  order.group = {.name = "engine", .source = source, .sources = sources};
  return order;
}

class CollectiveTest : public testing::Processes {
 protected:
  static absl::StatusOr<std::unique_ptr<MoeSession>> OpenGroup(Client& client) {
    return client.OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kCollective),
                                testing::kReadyTimeout);
  }
  // Until it is a result, at most so long; the first error that was none of those.
  static absl::Status StepsAgain(MoeSession& session, Batch& batch, Duration within) {
    const auto until = std::chrono::steady_clock::now() + within;
    absl::Status last;
    do {
      last = RunStep(session, batch, kLayer);
      if (last.ok() || !absl::IsUnavailable(last)) return last;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return last;
  }
};

// low_latency promises the same bits wherever experts are and however rows travel.
TEST_F(CollectiveTest, GivesTheBitsOfP2pAndTheLayerOfTheDefinition) {
  for (const std::int32_t workers : {1, 2, 4}) {
    Deploy(workers);
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
    SY_ASSERT_OK_AND_ASSIGN(
        const auto p2p, client->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                              testing::kReadyTimeout));
    SY_ASSERT_OK_AND_ASSIGN(const auto group, client->Open(Order(DispatchMode::kLowLatency,
                                                                 BindingChoice::kCollective)));
    SY_ASSERT_OK_AND_ASSIGN(const auto summed,
                            client->Open(Order(DispatchMode::kNormal, BindingChoice::kCollective)));
    for (const std::int32_t tokens : {1, 19, 256}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", tokens, " tokens"));
      Batch direct(tokens, 41);
      SY_ASSERT_OK(RunStep(*p2p, direct, kLayer));
      Batch batch(tokens, 41);
      SY_ASSERT_OK(RunStep(*group, batch, kLayer));
      EXPECT_EQ(std::memcmp(batch.y.data(), direct.y.data(), batch.y.size() * sizeof(float)), 0);
      Batch other(tokens, 41);
      SY_ASSERT_OK(RunStep(*summed, other, kLayer));
      EXPECT_LE(CalcDiff(other.y, ReferenceOf(other, kLayer)), kPooledDiffMax);
    }
    SY_ASSERT_OK_AND_ASSIGN(const auto report, group->Report(testing::kReadyTimeout));
    EXPECT_EQ(report.grant.binding, Binding::kCollective);
  }
}

// The devices exchange the rows by themselves, and tell the worker of which expert they were.
TEST_F(CollectiveTest, TheLoadOfEachExpertIsShown) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto group, OpenGroup(*client));
  std::vector<std::uint32_t> wanted(testing::kExperts, 0);
  for (const std::int32_t tokens : {1, 19, 256}) {
    Batch batch(tokens, 41);
    SY_ASSERT_OK(RunStep(*group, batch, kLayer));
    for (const std::int32_t id : batch.ids) ++wanted[static_cast<std::size_t>(id)];
  }

  const auto stub = v1::CoordinatorService::NewStub(
      MakeGrpcChannel(deployment_->coordinator(), kControlMessageBytesMax));
  std::vector<std::uint32_t> shown;
  std::uint64_t timed = 0;
  const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
  do {
    shown.assign(testing::kExperts, 0);
    timed = 0;
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(testing::kReadyTimeout));
    v1::GetLoadResponse load;
    ASSERT_TRUE(stub->GetLoad(&context, v1::GetLoadRequest(), &load).ok());
    for (const v1::LoadSample& sample : load.samples()) {
      for (std::size_t i = 0; 4 * i < sample.rows().size(); ++i) {
        std::uint32_t rows = 0;
        std::memcpy(&rows, sample.rows().data() + 4 * i, 4);
        shown[i % testing::kExperts] += rows;
      }
      for (const v1::WorkerLoad& worker : sample.workers()) {
        for (const v1::WorkTimes& times : worker.times()) {
          EXPECT_EQ(times.kind(), v1::WORK_KIND_LOCKSTEP);
          for (const std::uint64_t bucket : times.step().buckets()) timed += bucket;
        }
      }
    }
  } while ((shown != wanted || timed < 6) && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(shown, wanted);
  EXPECT_GE(timed, 6U) << "three steps of each of the two workers";
}

// Longer than any queue of steps, of both kinds of sessions of the same workers at once.
TEST_F(CollectiveTest, TwoGroupsAndASessionOfP2pShareTheWorkers) {
  constexpr int kSteps = 1500;
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  std::vector<std::unique_ptr<MoeSession>> sessions;
  for (const BindingChoice binding :
       {BindingChoice::kP2p, BindingChoice::kCollective, BindingChoice::kCollective}) {
    SY_ASSERT_OK_AND_ASSIGN(
        auto session,
        client->OpenWhenReady(Order(DispatchMode::kLowLatency, binding), testing::kReadyTimeout));
    sessions.push_back(std::move(session));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t s = 0; s < sessions.size(); ++s) {
    threads.emplace_back([&, s] {
      std::vector<float> first;
      for (int i = 0; i < kSteps; ++i) {
        Batch batch(1 + i % 3, 7 + static_cast<std::uint64_t>(i % 3));
        const absl::Status run = RunStep(*sessions[s], batch, i % 2 == 0 ? kLayer : 0);
        if (!run.ok()) {
          ADD_FAILURE() << s << " " << i << " " << run;
          ++wrong;
          return;
        }
        if (i % 6 != 0) continue;  // the same step each time
        if (first.empty()) first = batch.y;
        if (batch.y != first) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CollectiveTest, SourcesThatStepTogetherOrAloneGetTheirSums) {
  constexpr std::int32_t kSources = 2;
  Deploy(2);
  std::vector<std::unique_ptr<Client>> clients;
  for (std::int32_t s = 0; s < kSources; ++s) {
    SY_ASSERT_OK_AND_ASSIGN(auto client, Connect("auto"));
    clients.push_back(std::move(client));
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, clients[0]->OpenWhenReady(
                                              Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                              testing::kReadyTimeout));
  Batch expected(5, 41);
  SY_ASSERT_OK(RunStep(*p2p, expected, kLayer));
  std::vector<std::thread> threads;
  std::latch done(kSources);
  for (std::int32_t s = 0; s < kSources; ++s) {
    threads.emplace_back([&, s] {
      const auto session = clients[static_cast<std::size_t>(s)]->Open(OrderOfSource(s, kSources));
      SY_ASSERT_OK(session.status());
      // The second has half as many steps, so the first makes the others alone.
      for (int i = 0; i < 100; i += 1 + s) {
        Batch batch(5, 41);
        SY_ASSERT_OK(RunStep(**session, batch, kLayer)) << s << " " << i;
        EXPECT_EQ(batch.y, expected.y) << s << " " << i;
      }
      done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CollectiveTest, AWorkerThatIsKilledIsAnErrorAndTheRestServesOn) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenGroup(*client));
  Batch batch(7, 41);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  const std::vector<float> first = batch.y;

  deployment_->worker_process(1).Signal(SIGKILL);

  EXPECT_THAT(RunStep(*session, batch, kLayer),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  SY_ASSERT_OK(StepsAgain(*session, batch, testing::kReadyTimeout));
  EXPECT_EQ(batch.y, first);
}

// More steps than the log holds: the worker that is no more must not hold them up.
TEST_F(CollectiveTest, AWorkerThatWasKilledAndCameBackLeavesNothingInTheWay) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenGroup(*client));
  Batch batch(1, 41);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  deployment_->worker_process(1).Signal(SIGKILL);
  SY_ASSERT_OK(StepsAgain(*session, batch, testing::kReadyTimeout));
  SY_ASSERT_OK(deployment_->RestartWorker(1));
  SY_ASSERT_OK(StepsAgain(*session, batch, testing::kReadyTimeout));
  for (std::uint32_t step = 0; step < StepLog::kSteps * 5 / 4; ++step) {
    absl::Status ran = RunStep(*session, batch, kLayer);
    // The plan with the worker that is back may come in between.
    if (absl::IsUnavailable(ran)) ran = StepsAgain(*session, batch, testing::kReadyTimeout);
    const auto until = std::chrono::steady_clock::now() + 5 * StepLog::kSilentMax;
    while (absl::IsResourceExhausted(ran) && std::chrono::steady_clock::now() < until) {
      ran = RunStep(*session, batch, kLayer);  // the worker has not been silent for long enough
    }
    ASSERT_TRUE(ran.ok()) << step << ": " << ran;
  }
}

// 16 experts on three workers: the session says so at once, and is not told to wait for a group.
TEST_F(CollectiveTest, APlanThatMakesNoGroupIsTheError) {
  LocalDeploymentOptions options;
  options.min_workers = 2;
  Deploy(3, std::move(options));
  deployment_->worker_process(2).Signal(SIGKILL);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  const OpenSessionRequest order = Order(DispatchMode::kLowLatency, BindingChoice::kCollective);
  const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
  auto session = client->OpenWhenReady(order, testing::kReadyTimeout);
  while (!session.ok() && std::chrono::steady_clock::now() < until) {
    session = client->OpenWhenReady(order, testing::kReadyTimeout);
  }
  SY_ASSERT_OK(session.status());
  Batch batch(7, 41);
  SY_ASSERT_OK(RunStep(**session, batch, kLayer));

  SY_ASSERT_OK(deployment_->RestartWorker(2));

  absl::Status last;
  while (last.ok() || absl::IsUnavailable(last)) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << last;
    last = RunStep(**session, batch, kLayer);
  }
  EXPECT_THAT(last, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(last.message(), HasSubstr("16 experts do not divide by 3 workers"));
  EXPECT_THAT(last.message(), HasSubstr("p2p"));
}

// The default placement moves few experts, so that they are not in order any more.
TEST_F(CollectiveTest, ExpertsMayBeAnywhereOnceAWorkerIsGone) {
  LocalDeploymentOptions options;
  options.min_workers = 2;
  Deploy(3, std::move(options));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(
      const auto p2p, client->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                            testing::kReadyTimeout));
  // The experts have to be on three workers first: two that start together share them in order.
  ASSERT_TRUE(WaitForWorkers(*p2p, 3));
  deployment_->worker_process(0).Signal(SIGKILL);
  ASSERT_TRUE(WaitForWorkers(*p2p, 2));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, p2p->Grant());
  EXPECT_FALSE(GroupPlaces(grant.plan, *grant.plan.FindLayer(LayerId{kLayer})).empty());
  SY_ASSERT_OK_AND_ASSIGN(const auto group, client->OpenWhenReady(Order(DispatchMode::kLowLatency,
                                                                        BindingChoice::kCollective),
                                                                  testing::kReadyTimeout));
  for (const std::int32_t tokens : {1, 19, 256}) {
    Batch direct(tokens, 41);
    Batch batch(tokens, 41);
    SY_ASSERT_OK(RunStep(*p2p, direct, kLayer));
    SY_ASSERT_OK(RunStep(*group, batch, kLayer));
    EXPECT_EQ(std::memcmp(batch.y.data(), direct.y.data(), batch.y.size() * sizeof(float)), 0);
  }
}

TEST_F(CollectiveTest, WhatNoGroupDoesIsRefusedWithTheReason) {
  Deploy(3);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK(client
                   ->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                   testing::kReadyTimeout)
                   .status());
  const auto open = [&](const OpenSessionRequest& order) { return client->Open(order).status(); };
  OpenSessionRequest order = Order(DispatchMode::kLowLatency, BindingChoice::kCollective);

  const absl::Status uneven = open(order);
  EXPECT_THAT(uneven, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << "R45";
  EXPECT_THAT(std::string(uneven.message()), HasSubstr("experts do not divide by 3 workers"));
  order.strict = true;
  EXPECT_THAT(open(order), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  order.strict = false;
  order.max_tokens = 1025;
  EXPECT_THAT(open(order), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens));
  order.mode = DispatchMode::kNormal;
  order.max_tokens = 8;
  order.source = DeviceKind::kCuda;
  const absl::Status kinds = open(order);
  EXPECT_THAT(kinds, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// Never a smaller sum: the step is refused, and the group goes on.
TEST_F(CollectiveTest, IdsThatAreWrongAreNamed) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenGroup(*client));
  Batch batch(7, 41);
  const std::int32_t right = std::exchange(batch.ids[5], testing::kExperts);
  EXPECT_THAT(RunStep(*session, batch, kLayer),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
  batch.ids[5] = batch.ids[4];
  EXPECT_THAT(RunStep(*session, batch, kLayer),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kDuplicateExpert));
  batch.ids[5] = right;
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
}

// Its ranks wait for each other, so that a step cannot be taken back before the group's own wait.
TEST_F(CollectiveTest, AStepHasNoDeadlineOfItsOwn) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenGroup(*client));
  Batch batch(7, 41);
  StepRequest request = batch.Request(kLayer);
  request.deadline = std::chrono::milliseconds(7);
  const absl::Status refused = session->Submit(request).status();
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(refused.message(), HasSubstr("5000 ms"));
  request.deadline = std::chrono::seconds(5);
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(request));
  SY_ASSERT_OK(session->Wait(ticket));
}

// The largest step that a group may have: its size fills the word of the log.
TEST_F(CollectiveTest, AStepOfAsManyTokensAsAGroupTakes) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  OpenSessionRequest order = Order(DispatchMode::kNormal, BindingChoice::kCollective);
  order.max_tokens = 1024;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, testing::kReadyTimeout));
  Batch batch(1024, 41);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
}

// R61: rounds of 1,024 tokens, with another source's steps between them, and wrong ids in the last.
TEST_F(CollectiveTest, AStepOfMoreTokensGoesInRounds) {
  constexpr std::int32_t kTokens = 5000;
  Deploy(2);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<MoeSession>> sessions(2);
  std::vector<std::thread> opening;
  for (std::int32_t s = 0; s < 2; ++s) {
    SY_ASSERT_OK_AND_ASSIGN(auto client, Connect("auto"));
    clients.push_back(std::move(client));
  }
  for (std::size_t s = 0; s < 2; ++s) {
    opening.emplace_back([&, s] {
      OpenSessionRequest order = OrderOfSource(static_cast<std::int32_t>(s), 2);
      order.mode = DispatchMode::kNormal;
      order.max_tokens = kTokens;
      auto session = clients[s]->OpenWhenReady(order, testing::kReadyTimeout);
      ASSERT_TRUE(session.ok()) << session.status();
      sessions[s] = *std::move(session);
    });
  }
  for (std::thread& thread : opening) thread.join();
  ASSERT_NE(sessions[0], nullptr);
  ASSERT_NE(sessions[1], nullptr);
  std::atomic<bool> stop{false};
  std::atomic<int> small_steps{0};
  std::thread other([&] {
    Batch small(3, 5);
    while (!stop) {
      if (RunStep(*sessions[1], small, 0).ok()) ++small_steps;
    }
  });
  Batch batch(kTokens, 41);
  const absl::Status ran = RunStep(*sessions[0], batch, kLayer);
  Batch wrong(kTokens, 43);
  wrong.ids[wrong.ids.size() - 1] = testing::kExperts;
  const absl::Status refused = RunStep(*sessions[0], wrong, kLayer);
  stop = true;
  other.join();

  SY_ASSERT_OK(ran);
  EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
  EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat(kTokens - 1)));
  EXPECT_GT(small_steps, 0);
}

// R40: one that means another mode is refused when it opens, and so is never waited for in a step.
TEST_F(CollectiveTest, SourcesThatDisagreeAreNamed) {
  Deploy(2);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK(client
                   ->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                   testing::kReadyTimeout)
                   .status());
  const auto channel = MakeGrpcSessionChannel(deployment_->coordinator());
  SY_ASSERT_OK(channel->OpenSession(OrderOfSource(0, 2), testing::kReadyTimeout).status());
  OpenSessionRequest other = OrderOfSource(1, 2);
  other.mode = DispatchMode::kNormal;

  const absl::Status refused = client->Open(other).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("mode low_latency"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("mode normal"));
}

// The other ranks are there, and nobody waits longer than opening may take.
TEST_F(CollectiveTest, ASourceWhoseGroupStaysIncompleteIsTold) {
  Deploy(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));

  EXPECT_THAT(client->OpenWhenReady(OrderOfSource(0, 2), Duration::zero()).status(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
}

}  // namespace
}  // namespace switchyard
