// Workers in the process of their user: by the C interface, as an engine has them, and with a
// device that fails.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/switchyard_graph.h"
#include "client/switchyard_worker.h"
#include "core/base/error.h"
#include "services/bin/running_worker.h"
#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/late_device.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::kReadyTimeout;
using testing::LateDevice;
using testing::ReferenceOf;
using testing::RunStep;

constexpr std::int32_t kLayer = 1;
constexpr double kDiffMax = 1.5e-5;
// A group that has to wait for the end of the one before waits 15 s.
constexpr auto kChangeMax = std::chrono::seconds(8);

class HostedWorkerTest : public testing::Processes {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.min_workers = 2;  // the second is that of this process
    Deploy(1, std::move(options));
  }
  [[nodiscard]] std::vector<std::string> Arguments() const {
    return {"--coordinator", deployment_->coordinator(), "--id", "hosted", "--net-devices", "lo"};
  }
  static sy_code Open(const std::vector<std::string>& arguments, sy_worker** out,
                      std::string* error) {
    std::vector<const char*> words;
    for (const std::string& each : arguments) words.push_back(each.c_str());
    sy_worker_options options;
    SY_INIT(options);
    options.arguments = words.data();
    options.argument_count = static_cast<std::uint32_t>(words.size());
    std::array<char, 4096> text{};
    const sy_code code = sy_worker_open(&options, out, text.data(), text.size());
    *error = text.data();
    return code;
  }
  static std::string StatusOf(const sy_worker* worker) {
    std::array<char, 512> text{};
    EXPECT_GT(sy_worker_status(worker, text.data(), text.size()), 1U);
    return text.data();
  }
  static absl::StatusOr<std::unique_ptr<MoeSession>> OpenSession(Client& client,
                                                                 BindingChoice binding) {
    OpenSessionRequest order;
    order.mode = DispatchMode::kLowLatency;
    order.max_tokens = 32;
    order.binding = binding;
    order.step_deadline = std::chrono::seconds(5);
    return client.OpenWhenReady(order, kReadyTimeout);
  }
  // Answers of the layer to a batch that is always the same.
  static std::vector<float> Answers(MoeSession& session) {
    Batch batch(7, 3);
    const auto until = std::chrono::steady_clock::now() + kReadyTimeout;
    absl::Status status = RunStep(session, batch, kLayer);
    // A plan that is about to serve.
    while (absl::IsUnavailable(status) && std::chrono::steady_clock::now() < until) {
      status = RunStep(session, batch, kLayer);
    }
    SY_EXPECT_OK(status);
    return batch.y;
  }
  static std::vector<float> Expected(const std::vector<float>& answers) {
    const Batch batch(7, 3);
    EXPECT_LT(CalcDiff(answers, ReferenceOf(batch, kLayer)), kDiffMax);
    return answers;
  }
};

TEST_F(HostedWorkerTest, ServesSessionsOfItsOwnProcessUntilItIsClosed) {
  sy_worker* worker = nullptr;
  std::string error;
  ASSERT_EQ(Open(Arguments(), &worker, &error), SY_OK) << error;
  EXPECT_THAT(StatusOf(worker), HasSubstr(R"("system_endpoint":"","state":"running")"));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto direct, OpenSession(*client, BindingChoice::kP2p));
  SY_ASSERT_OK_AND_ASSIGN(const auto lockstep, OpenSession(*client, BindingChoice::kCollective));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, direct->Grant());
  ASSERT_EQ(grant.plan.workers.size(), 2U);
  EXPECT_EQ(grant.plan.workers[0].id, "hosted");

  const std::vector<float> answers = Expected(Answers(*direct));
  EXPECT_EQ(Answers(*lockstep), answers);

  std::array<char, 512> text{};
  EXPECT_EQ(sy_worker_close(worker, text.data(), text.size()), SY_OK) << text.data();
  EXPECT_STREQ(text.data(), "{}");
  ASSERT_TRUE(WaitForWorkers(*direct, 1));
  ASSERT_TRUE(WaitForWorkers(*lockstep, 1));
  EXPECT_EQ(Answers(*direct), answers);
  EXPECT_EQ(Answers(*lockstep), answers);
}

// It is rank 0 whenever it is there. Its sessions see no error and do not wait: a group forms on
// the plan with it, and on that without it, beside the one before.
TEST_F(HostedWorkerTest, ComesAndLeavesAsTheFirstWorkerOfAGroupThatMakesSteps) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  std::string error;
  sy_worker* worker = nullptr;
  ASSERT_EQ(Open(Arguments(), &worker, &error), SY_OK) << error;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenSession(*client, BindingChoice::kCollective));
  const std::vector<float> answers = Expected(Answers(*session));
  // Makes steps until the session serves on `workers` workers.
  const auto steps_until = [&](std::size_t workers) {
    const auto begun = std::chrono::steady_clock::now();
    for (SessionGrant grant; grant.plan.workers.size() != workers;) {
      Batch batch(7, 3);
      const absl::Status status = RunStep(*session, batch, kLayer);
      if (!status.ok()) return status;
      if (batch.y != answers) return absl::InternalError("another answer");
      if (std::chrono::steady_clock::now() - begun > kChangeMax) {
        return absl::DeadlineExceededError("the group of the new plan is late");
      }
      auto now = session->Grant();
      if (!now.ok()) return now.status();
      grant = *std::move(now);
    }
    return absl::OkStatus();
  };

  for (int turn = 0; turn < 2; ++turn) {
    std::thread close([&] { EXPECT_EQ(sy_worker_close(worker, nullptr, 0), SY_OK); });
    SY_EXPECT_OK(steps_until(1));
    close.join();
    ASSERT_EQ(Open(Arguments(), &worker, &error), SY_OK) << error;
    SY_EXPECT_OK(steps_until(2));
  }
  EXPECT_EQ(sy_worker_close(worker, nullptr, 0), SY_OK);
}

TEST_F(HostedWorkerTest, HasASystemPortWhereItsArgumentsSaySo) {
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(), {"--system-port", "0"});
  sy_worker* worker = nullptr;
  std::string error;
  ASSERT_EQ(Open(arguments, &worker, &error), SY_OK) << error;

  EXPECT_THAT(StatusOf(worker), HasSubstr(R"("system_endpoint":"127.0.0.1:)"));

  // It has not registered, or serves already: both leave.
  EXPECT_EQ(sy_worker_close(worker, nullptr, 0), SY_OK);
}

TEST_F(HostedWorkerTest, RefusesWhatTheProgramRefuses) {
  sy_worker* worker = nullptr;
  std::string error;
  EXPECT_EQ(Open({"--cordinator", "a:1"}, &worker, &error), SY_INVALID_ARGUMENT);
  EXPECT_THAT(error, HasSubstr("--coordinator"));
  EXPECT_EQ(Open({"--help"}, &worker, &error), SY_INVALID_ARGUMENT);
  EXPECT_EQ(Open({}, &worker, &error), SY_INVALID_ARGUMENT);
  EXPECT_THAT(error, HasSubstr("--id"));
  std::vector<std::string> arguments = Arguments();
  arguments.insert(arguments.end(), {"--listen", "0.0.0.0:0"});
  EXPECT_EQ(Open(arguments, &worker, &error), SY_INVALID_ARGUMENT);
  EXPECT_THAT(error, HasSubstr("--advertise"));
  arguments = Arguments();
  arguments.insert(arguments.end(), {"--device", "abacus:0"});
  EXPECT_NE(Open(arguments, &worker, &error), SY_OK);
  EXPECT_THAT(error, HasSubstr("abacus"));
  EXPECT_EQ(worker, nullptr);
}

TEST_F(HostedWorkerTest, AnswersBadStructuresWithErrors) {
  sy_worker* worker = nullptr;
  sy_worker_options options;
  SY_INIT(options);
  EXPECT_EQ(sy_worker_open(&options, nullptr, nullptr, 0), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_worker_open(nullptr, &worker, nullptr, 0), SY_INVALID_ARGUMENT);
  options.argument_count = 1;
  EXPECT_EQ(sy_worker_open(&options, &worker, nullptr, 0), SY_INVALID_ARGUMENT);
  const char* nothing = nullptr;
  options.arguments = &nothing;
  EXPECT_EQ(sy_worker_open(&options, &worker, nullptr, 0), SY_INVALID_ARGUMENT);
  options.argument_count = 0;
  options.size = 8;
  EXPECT_EQ(sy_worker_open(&options, &worker, nullptr, 0), SY_INVALID_ARGUMENT);
  EXPECT_EQ(worker, nullptr);
  EXPECT_EQ(sy_worker_status(nullptr, nullptr, 0), 0U);
  EXPECT_EQ(sy_worker_close(nullptr, nullptr, 0), SY_OK);
}

// With a name for its group a session is in lockstep without asking for it.
void ExpectChosen(sy_client* client, sy_session_options order, const sy_step_request& request) {
  order.binding = SY_BIND_AUTO;
  order.group = "engine";
  sy_session* chosen = nullptr;
  ASSERT_EQ(sy_session_open(client, &order, &chosen), SY_OK);
  std::string status(1 << 16, '\0');
  status.resize(sy_session_status(chosen, status.data(), status.size()));
  EXPECT_THAT(status, HasSubstr("\"path\":\"collective\""));
  EXPECT_THAT(status, HasSubstr("\"path_reason\":\"auto is collective where the group can be\""));
  EXPECT_EQ(sy_run(chosen, &request, 10'000), SY_OK);
  EXPECT_EQ(sy_session_close(chosen), SY_OK);
}

TEST_F(HostedWorkerTest, ItsClientsSessionsSayWhatGraphsTheyHave) {
  sy_worker* worker = nullptr;
  std::string error;
  ASSERT_EQ(Open(Arguments(), &worker, &error), SY_OK) << error;
  const std::string coordinator = deployment_->coordinator();
  sy_client_options options;
  SY_INIT(options);
  options.coordinator = coordinator.c_str();
  options.net_devices = "lo";
  options.worker = worker;
  sy_client* client = nullptr;
  ASSERT_EQ(sy_client_open(&options, &client), SY_OK);
  sy_session_options order;
  SY_INIT(order);
  order.phase = SY_PHASE_MIXED;
  order.mode = SY_MODE_LOW_LATENCY;
  order.max_tokens = 32;
  order.binding = SY_BIND_COLLECTIVE;
  order.hosts = "hosted";
  sy_session* session = nullptr;
  const auto until = std::chrono::steady_clock::now() + kReadyTimeout;
  while (sy_session_open(client, &order, &session) != SY_OK) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
  }
  Batch batch(7, 3);
  sy_step_request request;
  SY_INIT(request);
  request.layer = kLayer;
  request.tokens = 7;
  request.top_k = testing::kTopK;
  request.x = reinterpret_cast<const uint16_t*>(batch.x.data());
  request.x_stride = testing::kHidden;
  request.ids = batch.ids.data();
  request.ids_stride = testing::kTopK;
  request.weights = batch.weights.data();
  request.weights_stride = testing::kTopK;
  request.y = batch.y.data();
  request.y_stride = testing::kHidden;
  EXPECT_EQ(sy_run(session, &request, 10'000), SY_OK);
  Expected(batch.y);

  sy_graph* graph = nullptr;
  EXPECT_EQ(sy_graph_open(session, &graph), SY_FAILED_PRECONDITION);  // one worker is elsewhere
  EXPECT_EQ(graph, nullptr);
  std::array<char, 1024> text{};
  EXPECT_GT(sy_last_error(client, text.data(), text.size()), 1U);
  EXPECT_THAT(text.data(), HasSubstr("name the workers of all ranks as hosts"));
  EXPECT_EQ(sy_graph_open(nullptr, &graph), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_open(session, nullptr), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_add(nullptr, &request), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_begin_launch(nullptr, nullptr), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_end_launch(nullptr, nullptr, nullptr), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_state(nullptr, nullptr), SY_INVALID_ARGUMENT);
  EXPECT_EQ(sy_graph_close(nullptr), SY_INVALID_ARGUMENT);

  ExpectChosen(client, order, request);
  EXPECT_EQ(sy_session_close(session), SY_OK);
  EXPECT_EQ(sy_graph_open(session, &graph), SY_FAILED_PRECONDITION);
  EXPECT_EQ(sy_worker_close(worker, text.data(), text.size()), SY_OK) << text.data();
  sy_client_close(client);
}

// What the process would notice of a library that takes it for its own.
struct ProcessState {
  static ProcessState Now() {
    ProcessState state;
    sigprocmask(SIG_BLOCK, nullptr, &state.blocked);
    for (int signal = 1; signal < 32; ++signal) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      state.handlers.push_back(action.sa_handler);
    }
    getrlimit(RLIMIT_NOFILE, &state.files);
    return state;
  }
  friend bool operator==(const ProcessState& a, const ProcessState& b) {
    for (int signal = 1; signal < 32; ++signal) {
      if (sigismember(&a.blocked, signal) != sigismember(&b.blocked, signal)) return false;
    }
    return a.handlers == b.handlers && a.files.rlim_cur == b.files.rlim_cur;
  }

  sigset_t blocked{};
  std::vector<void (*)(int)> handlers;
  rlimit files{};
};

TEST_F(HostedWorkerTest, TouchesNothingOfTheProcess) {
  const ProcessState before = ProcessState::Now();
  sy_worker* worker = nullptr;
  std::string error;
  ASSERT_EQ(Open(Arguments(), &worker, &error), SY_OK) << error;
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenSession(*client, BindingChoice::kP2p));
  Answers(*session);

  EXPECT_EQ(ProcessState::Now(), before);
  EXPECT_EQ(sy_worker_close(worker, nullptr, 0), SY_OK);
  EXPECT_EQ(ProcessState::Now(), before);
}

TEST_F(HostedWorkerTest, EndsWithTheFaultOfItsDeviceAndTheOthersGoOn) {
  Logger logger("hosted", LogLevel::kError);
  WorkerSettings settings;
  settings.coordinator = deployment_->coordinator();
  settings.id = "hosted";
  settings.net_devices = "lo";
  LateDevice* device = nullptr;
  const auto make_device = [&device](absl::string_view,
                                     Logger*) -> absl::StatusOr<std::unique_ptr<DeviceBackend>> {
    testing::LateDeviceOptions options;
    options.kernel_family = "";
    options.host_access = true;
    auto made = LateDevice::Create(std::move(options));
    if (!made.ok()) return made.status();
    device = made->get();
    return *std::move(made);
  };
  std::atomic<bool> has_ended{false};
  SY_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<RunningWorker> worker,
      RunningWorker::Start(settings, {.make_device = make_device,
                                      .logger = &logger,
                                      .on_end = [&has_ended] { has_ended.store(true); }}));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenSession(*client, BindingChoice::kP2p));
  const std::vector<float> answers = Expected(Answers(*session));
  EXPECT_FALSE(has_ended);

  device->Die();
  Batch batch(7, 3);
  EXPECT_THAT(RunStep(*session, batch, kLayer),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_TRUE(has_ended);
  EXPECT_THAT(worker->End(), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(worker->End(), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));

  ASSERT_TRUE(WaitForWorkers(*session, 1));
  EXPECT_EQ(Answers(*session), answers);
}

}  // namespace
}  // namespace switchyard
