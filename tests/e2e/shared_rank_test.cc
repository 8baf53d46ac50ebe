// Sources that share the ranks of workers of their process: expert parallelism with attention and
// experts on the same devices. Each engine rank here is a worker and a client of this process.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/format/dtype.h"
#include "services/bin/running_worker.h"
#include "services/bin/worker_options.h"
#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::kReadyTimeout;
using testing::ReferenceOf;
using testing::RunStep;

constexpr std::int32_t kLayers = 4;
constexpr std::int32_t kTokensMax = 64;
constexpr double kSummedDiffMax = 1.5e-5;
constexpr auto kChangeMax = std::chrono::seconds(8);

OpenSessionRequest Order(DispatchMode mode, BindingChoice binding) {
  OpenSessionRequest order;
  order.mode = mode;
  order.max_tokens = kTokensMax;
  order.binding = binding;
  order.step_deadline = std::chrono::seconds(5);
  return order;
}

OpenSessionRequest OrderOfSource(DispatchMode mode, const std::string& name, std::int32_t source,
                                 std::vector<std::string> hosts) {
  OpenSessionRequest order = Order(mode, BindingChoice::kCollective);
  order.group = {.name = name,
                 .source = source,
                 .sources = static_cast<std::int32_t>(hosts.size()),
                 .hosts = std::move(hosts)};
  return order;
}

class SharedRankTest : public testing::Processes {
 protected:
  // `others` workers are processes of their own. The deployment serves with `least`; 0: with all.
  void Start(std::int32_t others, std::int32_t engines, std::int32_t least = 0) {
    LocalDeploymentOptions options;
    options.min_workers = least > 0 ? least : others + engines;
    Deploy(others, std::move(options));
    engines_.resize(static_cast<std::size_t>(engines));
    for (std::size_t e = 0; e < engines_.size(); ++e) OpenEngine(e);
  }
  void OpenEngine(std::size_t e) {
    OpenWorker(e);
    SY_ASSERT_OK_AND_ASSIGN(engines_[e].client, ClientOf(engines_[e].worker->rank_host()));
  }
  void OpenWorker(std::size_t e) {
    WorkerSettings settings;
    settings.coordinator = deployment_->coordinator();
    settings.id = HostOf(e);
    settings.net_devices = "lo";
    settings.device = kDefaultDevice;
    SY_ASSERT_OK_AND_ASSIGN(
        engines_[e].worker,
        RunningWorker::Start(settings, {.make_device = &MakeDevice, .logger = &logger_}));
  }
  absl::StatusOr<std::unique_ptr<Client>> ClientOf(std::shared_ptr<RankHost> worker) {
    ClientOptions options;
    options.worker = std::move(worker);
    return Connect("auto", options);
  }
  static std::string HostOf(std::size_t e) { return absl::StrCat("rank-", e); }
  [[nodiscard]] std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (std::size_t e = 0; e < engines_.size(); ++e) hosts.push_back(HostOf(e));
    return hosts;
  }
  [[nodiscard]] absl::StatusOr<std::unique_ptr<MoeSession>> Open(std::size_t e, DispatchMode mode,
                                                                 const std::string& name) {
    const auto source = static_cast<std::int32_t>(e);
    return engines_[e].client->OpenWhenReady(OrderOfSource(mode, name, source, Hosts()),
                                             kReadyTimeout);
  }
  // All open at once: none is ready before the others have joined.
  std::vector<std::unique_ptr<MoeSession>> OpenAll(DispatchMode mode, const std::string& name) {
    std::vector<std::unique_ptr<MoeSession>> sessions(engines_.size());
    std::vector<std::thread> threads;
    for (std::size_t e = 0; e < engines_.size(); ++e) {
      threads.emplace_back([&, e] {
        auto session = Open(e, mode, name);
        SY_EXPECT_OK(session.status());
        if (session.ok()) sessions[e] = *std::move(session);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sessions;
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> OpenP2p() {
    return engines_[0].client->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kP2p),
                                             kReadyTimeout);
  }

  struct Engine {
    std::unique_ptr<RunningWorker> worker;  // a client may outlive it
    std::unique_ptr<Client> client;
  };
  Logger logger_{"hosted", LogLevel::kError};
  std::vector<Engine> engines_;
};

// Fails once and says so; `what` tells the step.
void ExpectRight(const absl::Status& ran, const Batch& batch, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_TRUE(ran.ok()) << what << ": " << ran;
  ASSERT_EQ(batch.y, expected) << what;
}

TEST_F(SharedRankTest, GivesTheBitsOfP2pWithTheOtherWorkersInOtherProcesses) {
  Start(/*others=*/1, /*engines=*/1);
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  SY_ASSERT_OK_AND_ASSIGN(const auto group, Open(0, DispatchMode::kLowLatency, "one"));
  SY_ASSERT_OK_AND_ASSIGN(const auto summed, Open(0, DispatchMode::kNormal, "two"));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, group->Grant());
  EXPECT_EQ(grant.plan.workers.size(), 2U);
  EXPECT_EQ(grant.group.hosts, Hosts());
  for (const std::int32_t tokens : {0, 1, 19, kTokensMax}) {
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      SCOPED_TRACE(absl::StrCat(tokens, " tokens, layer ", layer));
      Batch direct(tokens, 41);
      SY_ASSERT_OK(RunStep(*p2p, direct, layer));
      Batch batch(tokens, 41);
      SY_ASSERT_OK(RunStep(*group, batch, layer));
      EXPECT_EQ(batch.y, direct.y);
      Batch other(tokens, 41);
      SY_ASSERT_OK(RunStep(*summed, other, layer));
      if (tokens == 0) continue;
      EXPECT_LE(CalcDiff(other.y, ReferenceOf(other, layer)), kSummedDiffMax);
    }
  }
}

// Engines that decode and prefill at once, one of them with fewer steps, so that the other makes
// some alone; beside them a session of p2p and a group whose source has a rank of its own.
TEST_F(SharedRankTest, EnginesOfAllRanksStepTogetherAndAlone) {
  constexpr int kSteps = 240;
  Start(/*others=*/0, /*engines=*/2);
  const auto decode = OpenAll(DispatchMode::kLowLatency, "decode");
  const auto prefill = OpenAll(DispatchMode::kNormal, "prefill");
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  SY_ASSERT_OK_AND_ASSIGN(const auto stranger, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(
      const auto apart,
      stranger->OpenWhenReady(Order(DispatchMode::kLowLatency, BindingChoice::kCollective),
                              kReadyTimeout));
  std::vector<std::vector<float>> expected;
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    Batch batch(9, 41);
    SY_ASSERT_OK(RunStep(*p2p, batch, layer));
    expected.push_back(batch.y);
  }
  const auto run = [&](MoeSession& session, int stride, bool same_bits, const std::string& what) {
    for (int i = 0; i < kSteps; i += stride) {
      const std::int32_t layer = i % kLayers;
      Batch batch(9, 41);
      const absl::Status ran = RunStep(session, batch, layer);
      const auto& right = expected[static_cast<std::size_t>(layer)];
      if (same_bits) {
        ASSERT_NO_FATAL_FAILURE(ExpectRight(ran, batch, right, absl::StrCat(what, " ", i)));
      } else {
        ASSERT_TRUE(ran.ok()) << what << " " << i << ": " << ran;
        ASSERT_LE(CalcDiff(batch.y, std::vector<double>(right.begin(), right.end())),
                  kSummedDiffMax)
            << what << " " << i;
      }
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(run, std::ref(*decode[0]), 1, true, "decode 0");
  threads.emplace_back(run, std::ref(*decode[1]), 3, true, "decode 1");
  threads.emplace_back(run, std::ref(*prefill[0]), 5, false, "prefill 0");
  threads.emplace_back(run, std::ref(*prefill[1]), 7, false, "prefill 1");
  threads.emplace_back(run, std::ref(*p2p), 2, true, "p2p");
  threads.emplace_back(run, std::ref(*apart), 2, true, "apart");
  for (std::thread& thread : threads) thread.join();
}

// As beside launches of graphs: a source that comes late is waited for, and has its tokens in the
// step that it means.
TEST_F(SharedRankTest, InStepEverySourceIsWaitedFor) {
  constexpr int kSteps = 12;
  constexpr auto kLate = std::chrono::milliseconds(20);
  Start(/*others=*/0, /*engines=*/2);
  std::vector<std::unique_ptr<MoeSession>> sessions(2);
  std::vector<std::thread> threads;
  for (std::size_t e = 0; e < 2; ++e) {
    threads.emplace_back([&, e] {
      OpenSessionRequest order = OrderOfSource(DispatchMode::kLowLatency, "in step",
                                               static_cast<std::int32_t>(e), Hosts());
      order.group.in_step = true;
      auto session = engines_[e].client->OpenWhenReady(order, kReadyTimeout);
      SY_ASSERT_OK(session.status());
      sessions[e] = *std::move(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(sessions[0] != nullptr && sessions[1] != nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  Batch expected(9, 41);
  SY_ASSERT_OK(RunStep(*p2p, expected, 1));
  threads.clear();
  std::array<Duration, 2> took{};
  const auto begun = std::chrono::steady_clock::now();
  for (std::size_t e = 0; e < 2; ++e) {
    threads.emplace_back([&, e] {
      for (int i = 0; i < kSteps; ++i) {
        const auto late = std::chrono::steady_clock::now() + kLate;
        while (e == 1 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
        Batch batch(9, 41);
        ASSERT_NO_FATAL_FAILURE(ExpectRight(RunStep(*sessions[e], batch, 1), batch, expected.y,
                                            absl::StrCat(e, " ", i)));
      }
      took[e] = std::chrono::steady_clock::now() - begun;
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Without the other, the first source's steps would have taken some milliseconds each.
  EXPECT_GT(took[0], kSteps * kLate * 9 / 10);
}

// Several steps in flight, from two threads of one source.
TEST_F(SharedRankTest, StepsInFlightOverlap) {
  Start(/*others=*/1, /*engines=*/1);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(0, DispatchMode::kLowLatency, "one"));
  Batch first(3, 41);
  SY_ASSERT_OK(RunStep(*session, first, 0));
  std::atomic<int> wrong{0};
  const auto run = [&] {
    for (int i = 0; i < 60; ++i) {
      std::vector<Batch> batches(5, Batch(3, 41));
      std::vector<StepTicket> tickets;
      for (Batch& batch : batches) {
        const auto ticket = session->Submit(batch.Request(0));
        if (ticket.ok()) tickets.push_back(*ticket);
        // Two threads may have more steps in flight than a session takes.
        if (!ticket.ok() && !absl::IsResourceExhausted(ticket.status())) ++wrong;
      }
      for (std::size_t t = tickets.size(); t-- > 0;) {
        if (!session->Wait(tickets[t]).ok() || batches[t].y != first.y) ++wrong;
      }
    }
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(wrong, 0);
}

// The plan without the worker gives the source a rank of its own, that with it gives it the
// worker's again. No step fails and none waits for long.
TEST_F(SharedRankTest, TheWorkerLeavesAndComesBackUnderItsSessions) {
  ASSERT_NO_FATAL_FAILURE(Start(/*others=*/1, /*engines=*/1, /*least=*/1));
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  ASSERT_TRUE(WaitForWorkers(*p2p, 2));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(0, DispatchMode::kLowLatency, "one"));
  Batch first(5, 41);
  SY_ASSERT_OK(RunStep(*session, first, 1));
  const auto steps_until = [&](MoeSession& of, std::size_t workers) {
    const auto begun = std::chrono::steady_clock::now();
    for (SessionGrant grant; grant.plan.workers.size() != workers;) {
      Batch batch(5, 41);
      ASSERT_NO_FATAL_FAILURE(ExpectRight(RunStep(of, batch, 1), batch, first.y, "a step"));
      ASSERT_LT(std::chrono::steady_clock::now() - begun, kChangeMax);
      SY_ASSERT_OK_AND_ASSIGN(grant, of.Grant());
    }
  };

  std::thread close([&] { SY_EXPECT_OK(engines_[0].worker->End()); });
  ASSERT_NO_FATAL_FAILURE(steps_until(*session, 1));
  close.join();
  engines_[0].worker.reset();

  // The client knows the worker that has ended, and takes the new one for none of its own.
  ASSERT_NO_FATAL_FAILURE(OpenWorker(0));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, ClientOf(engines_[0].worker->rank_host()));
  ASSERT_TRUE(WaitForWorkers(*p2p, 2));
  SY_ASSERT_OK_AND_ASSIGN(
      const auto again,
      client->OpenWhenReady(OrderOfSource(DispatchMode::kLowLatency, "again", 0, Hosts()),
                            kReadyTimeout));
  ASSERT_NO_FATAL_FAILURE(steps_until(*again, 2));
  Batch batch(5, 41);
  ASSERT_NO_FATAL_FAILURE(ExpectRight(RunStep(*again, batch, 1), batch, first.y, "the last step"));
}

TEST_F(SharedRankTest, AnotherRankThatIsKilledIsAnErrorAndTheRestServesOn) {
  ASSERT_NO_FATAL_FAILURE(Start(/*others=*/1, /*engines=*/1, /*least=*/1));
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  ASSERT_TRUE(WaitForWorkers(*p2p, 2));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(0, DispatchMode::kLowLatency, "one"));
  Batch first(5, 41);
  SY_ASSERT_OK(RunStep(*session, first, 1));

  deployment_->worker_process(0).Signal(SIGKILL);

  Batch batch(5, 41);
  EXPECT_THAT(RunStep(*session, batch, 1),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  SY_ASSERT_OK(session->Run(batch.Request(1), kReadyTimeout));
  EXPECT_EQ(batch.y, first.y);
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  EXPECT_EQ(grant.plan.workers.size(), 1U);
}

// As when an engine that fails closes its parts in any order.
TEST_F(SharedRankTest, AClientOutlivesItsWorkerAndItsSessions) {
  Start(/*others=*/0, /*engines=*/1);
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open(0, DispatchMode::kLowLatency, "one"));
  Batch batch(5, 41);
  SY_ASSERT_OK(RunStep(*session, batch, 1));
  const auto ticket = session->Submit(batch.Request(1));
  SY_ASSERT_OK(ticket.status());

  // The last worker of a deployment is not let go before it has waited.
  std::thread close([&] { engines_[0].worker->End().IgnoreError(); });
  SY_EXPECT_OK(session->Wait(*ticket));
  session.reset();
  close.join();
  engines_[0].worker.reset();

  const auto again =
      engines_[0].client->Open(OrderOfSource(DispatchMode::kLowLatency, "again", 0, Hosts()));
  EXPECT_THAT(again.status().code(), ::testing::AnyOf(absl::StatusCode::kUnavailable,
                                                      absl::StatusCode::kFailedPrecondition));
  engines_[0].client.reset();
}

// Those of GPUs are tested with PyTorch (tests/client/torch_steps.py).
TEST_F(SharedRankTest, GraphsAreRefusedWithTheReason) {
  Start(/*others=*/1, /*engines=*/1);
  SY_ASSERT_OK_AND_ASSIGN(const auto p2p, OpenP2p());
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(0, DispatchMode::kLowLatency, "one"));
  const auto open = [](MoeSession& of) {
    return of.UseGraphs([](StepGraphs& graphs) { return graphs.Open(TimePoint()).status(); });
  };
  EXPECT_THAT(open(*p2p), FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  // A worker apart would have nobody who launches there.
  const absl::Status apart = open(*session);
  EXPECT_THAT(apart, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
  EXPECT_THAT(std::string(apart.message()), HasSubstr("2 workers and 1 sources, 0 of them"));
}

TEST_F(SharedRankTest, ADeviceWithoutGraphsSaysSoAndTheSessionGoesOn) {
  Start(/*others=*/0, /*engines=*/1);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(0, DispatchMode::kLowLatency, "one"));
  Batch batch(5, 41);
  const auto with = [&](auto work) {
    return session->UseGraphs([&](StepGraphs& graphs) { return work(graphs); });
  };
  StepGraphs::Id id = 0;
  SY_ASSERT_OK(with([&](StepGraphs& graphs) {
    auto opened = graphs.Open(TimePoint());
    if (opened.ok()) id = *opened;
    return opened.status();
  }));
  EXPECT_THAT(with([&](StepGraphs& graphs) { return graphs.Add(id, batch.Request(1)); }),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(with([&](StepGraphs& graphs) { return graphs.BeginLaunch(id, nullptr); }),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  EXPECT_THAT(with([&](StepGraphs& graphs) { return graphs.EndLaunch(id, nullptr).status(); }),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  SY_EXPECT_OK(with([&](StepGraphs& graphs) {
    EXPECT_EQ(graphs.StateOf(id).value(), StepGraphs::State::kCurrent);
    return graphs.Close(id);
  }));
  EXPECT_THAT(with([&](StepGraphs& graphs) { return graphs.Close(id); }),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  EXPECT_THAT(with([&](StepGraphs& graphs) {
                for (std::size_t g = 0; g < StepGraphs::kGraphsMax; ++g) {
                  SY_RETURN_IF_ERROR(graphs.Open(TimePoint()).status());
                }
                return graphs.Open(TimePoint()).status();
              }),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  SY_EXPECT_OK(RunStep(*session, batch, 1));
}

TEST_F(SharedRankTest, AHostThatIsNotTheClientsIsRefusedWithTheReason) {
  Start(/*others=*/1, /*engines=*/1);
  SY_ASSERT_OK(OpenP2p().status());
  SY_ASSERT_OK_AND_ASSIGN(const auto stranger, Connect("auto"));
  const auto open = [&](Client& client, std::vector<std::string> hosts) {
    return client.Open(OrderOfSource(DispatchMode::kLowLatency, "one", 0, std::move(hosts)))
        .status();
  };
  const absl::Status none = open(*stranger, {HostOf(0)});
  EXPECT_THAT(none, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(none.message()), HasSubstr("whose client has none"));
  const absl::Status other = open(*engines_[0].client, {"w0"});
  EXPECT_THAT(other, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(other.message()), HasSubstr("whose client has worker rank-0"));
  const absl::Status bad = open(*stranger, {"a b"});
  EXPECT_THAT(bad, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  // A source in no worker's process has a rank of its own, as without hosts.
  SY_EXPECT_OK(open(*stranger, {""}));
}

}  // namespace
}  // namespace switchyard
