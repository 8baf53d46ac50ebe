// A worker joins, another one leaves in order and comes back, the deployment is applied again with
// another dtype, and the coordinator is killed and started again, all under prefill steps that take
// longer than every fixed grace and under decode steps of milliseconds: no step fails, answers stay
// the same, and decode waits no longer than it does beside prefill.
//
//   planned_change_e2e_test [--step-seconds=N]
//
// N is 8 by default where CPUs compute, and 3 on late workers (tests/testing/late_worker.cc). Those
// need next to no CPU time, so that many drills with steps of half a minute run side by side. What
// else the machine does slows their decode steps down as well: a second deployment, which no change
// meets, says by how much.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

#include "core/base/mutex.h"
#include "tests/e2e/large_checkpoint.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/random_step.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"
#include "worker/expert/batch_memory.h"

namespace switchyard {
namespace {

using testing::LargeCheckpoint;
using testing::Processes;
using testing::RandomStep;
using testing::RunStep;
using testing::StepLoad;

// Much work for each byte that travels: a step of half a minute still fits one message to a
// gateway.
constexpr MoeShape kShape{.hidden = 128, .intermediate = 16384, .experts = 4, .top_k = 4};
// Where the time does not depend on the work.
constexpr MoeShape kLateShape{.hidden = 128, .intermediate = 32, .experts = 4, .top_k = 4};
constexpr LayerId kLayer{0};
constexpr std::int32_t kFirstTokens = 1024;
constexpr std::int32_t kTokensMax = 120000;
constexpr std::int32_t kDecodeTokens = 4;
// What is left of a step when a worker is asked to leave. More than the grace of lost workers and
// that of retired epochs, and less than a leave may take.
constexpr Duration kLeaveLead = std::chrono::milliseconds(6500);
constexpr Duration kChangeMax = std::chrono::seconds(60);

TimePoint Now() { return SteadyClock().Now(); }
double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Sum orders differ with the number of workers.
constexpr double kDriftMax = 0.02;

struct Drill {
  const char* transport;
  bool late;
};
void PrintTo(const Drill& drill, std::ostream* out) {
  *out << (drill.late ? "late " : "") << drill.transport;
}

// The option --step-seconds.
Duration StepTime(bool late) {
  std::ifstream file("/proc/self/cmdline");
  int seconds = late ? 3 : 8;
  for (std::string word; std::getline(file, word, '\0');) {
    absl::string_view value = word;
    if (!absl::ConsumePrefix(&value, "--step-seconds=")) continue;
    EXPECT_TRUE(absl::SimpleAtoi(value, &seconds)) << word;
  }
  return std::chrono::seconds(seconds);
}

// |a - b| / |b|.
double Drift(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

// A step whose answer is the same each time. One thread at a time.
class SameStep {
 public:
  SameStep(const MoeShape& shape, std::int32_t tokens, std::uint64_t seed)
      : step_(shape, tokens, seed) {}
  // Fails if the answer is not the first one.
  absl::Status Run(MoeSession& session) {
    const absl::Status status = RunStep(session, step_, kLayer);
    if (!status.ok()) return status;
    if (first_.empty()) first_ = step_.y;
    const double drift = Drift(step_.y, first_);
    if (drift <= kDriftMax) return absl::OkStatus();  // false for NaN
    return absl::InternalError(absl::StrCat("the answer is off by ", drift));
  }
  [[nodiscard]] std::int32_t tokens() const { return step_.tokens; }

 private:
  RandomStep step_;
  std::vector<float> first_;
};

class PlannedChangeTest : public Processes, public ::testing::WithParamInterface<Drill> {
 protected:
  void Start(int workers, const std::string& store) {
    LocalDeploymentOptions options;
    options.checkpoint = model_.path();
    options.min_workers = 2;
    options.coordinator_flags = {"--store", store};
    if (GetParam().late) options.bin_dir = LateBinDir();
    Deploy(workers, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    SY_ASSERT_OK_AND_ASSIGN(watcher_client_, Connect("auto"));
    SY_ASSERT_OK_AND_ASSIGN(watcher_, watcher_client_->OpenWhenReady({}, testing::kReadyTimeout));
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(GetParam().transport));
    OpenSessionRequest order;
    order.phase = Phase::kPrefill;
    order.max_tokens = kTokensMax;
    order.step_deadline = 10 * step_min_;
    SY_ASSERT_OK_AND_ASSIGN(prefill_, client_->OpenWhenReady(order, testing::kReadyTimeout));
    order = {};
    order.phase = Phase::kDecode;
    order.max_tokens = kDecodeTokens;
    // Far beyond what they take, so that a machine under load fails no step either.
    order.step_deadline = std::chrono::seconds(60);
    SY_ASSERT_OK_AND_ASSIGN(decode_, client_->OpenWhenReady(order, testing::kReadyTimeout));
    ASSERT_NO_FATAL_FAILURE(MakeLongStep());
    StartLoad();
    ASSERT_TRUE(WaitForPrefill(1));
    undisturbed_steps_ = decode_load_->steps();
    undisturbed_ = decode_load_->P99();
    if (GetParam().late) StartControl();
  }
  // Decode steps on a deployment that nothing changes.
  void StartControl() {
    LocalDeploymentOptions options;
    options.checkpoint = model_.path();
    options.bin_dir = late_bin_.path();
    std::swap(deployment_, control_deployment_);
    Deploy(2, std::move(options));
    if (deployment_ != nullptr) ConnectControl();
    std::swap(deployment_, control_deployment_);
    ASSERT_NE(control_load_, nullptr);
  }
  void ConnectControl() {
    SY_ASSERT_OK_AND_ASSIGN(control_client_, Connect(GetParam().transport));
    OpenSessionRequest order;
    order.phase = Phase::kDecode;
    order.max_tokens = kDecodeTokens;
    order.step_deadline = std::chrono::seconds(60);
    SY_ASSERT_OK_AND_ASSIGN(control_,
                            control_client_->OpenWhenReady(order, testing::kReadyTimeout));
    control_step_ = std::make_unique<SameStep>(model_.shape(), kDecodeTokens, 2);
    control_load_ = std::make_unique<StepLoad>([this] { return control_step_->Run(*control_); });
  }
  void TearDown() override {
    control_load_.reset();
    control_.reset();
    control_client_.reset();
    prefill_load_.reset();
    decode_load_.reset();
    prefill_.reset();
    decode_.reset();
    client_.reset();
    watcher_.reset();
    watcher_client_.reset();
  }

  // A folder of programs with late workers.
  std::string LateBinDir() {
    namespace fs = std::filesystem;
    fs::create_symlink(fs::path(testing::kBinDir) / "switchyard-coordinator",
                       late_bin_.Join("switchyard-coordinator"));
    fs::create_symlink(SWITCHYARD_LATE_WORKER, late_bin_.Join("switchyard-worker"));
    return late_bin_.path();
  }

  // A batch that takes step_min_ at least.
  void MakeLongStep() {
    std::int32_t tokens = kFirstTokens;
    for (int round = 0; round < 6; ++round) {
      prefill_step_ = std::make_unique<SameStep>(model_.shape(), tokens, 1);
      const TimePoint begin = Now();
      SY_ASSERT_OK(prefill_step_->Run(*prefill_));
      step_time_ = Now() - begin;
      const double took = Seconds(step_time_);
      if (took >= Seconds(step_min_)) return;
      // What late workers take is known exactly.
      const double margin = GetParam().late ? 1.02 : 1.15;
      const double more = std::min(margin * Seconds(step_min_) / took, 16.0);
      tokens = std::min(static_cast<std::int32_t>(more * tokens), kTokensMax);
    }
  }
  void StartLoad() {
    decode_step_ = std::make_unique<SameStep>(model_.shape(), kDecodeTokens, 2);
    prefill_load_ = std::make_unique<StepLoad>([this] { return prefill_step_->Run(*prefill_); });
    decode_load_ = std::make_unique<StepLoad>([this] { return decode_step_->Run(*decode_); });
  }
  [[nodiscard]] std::uint64_t PlanEpoch() {
    const auto grant = watcher_->Grant();
    return grant.ok() ? grant->plan.epoch.value : 0;
  }
  bool WaitUntil(Duration most, const std::function<bool()>& condition) {
    const TimePoint until = Now() + most;
    // What is waited for happens in other processes. A busy wait would take a core from them.
    const MutexLock lock(mutex_);
    while (!condition() && Now() < until) {
      never_.WaitUntil(mutex_, std::min(until, Now() + std::chrono::milliseconds(5)));
    }
    return condition();
  }
  bool WaitForPrefill(int steps) {
    return WaitUntil(20 * step_min_, [&] { return prefill_load_->steps() >= steps; });
  }

  // Makes a change while a prefill step runs and `lead` before its end, at its beginning where it
  // is shorter. Returns when that step has ended and another one has run on the next epoch.
  void Change(const char* name, Duration lead, const std::function<void()>& change) {
    const int decoded = decode_load_->steps();
    const int controls = control_load_ == nullptr ? 0 : control_load_->steps();
    const int before = prefill_load_->steps();
    const Duration whole = before > 0 ? prefill_load_->last() : step_time_;
    ASSERT_TRUE(WaitUntil(whole, [&] { return prefill_load_->age() >= whole - lead; }));
    const std::uint64_t epoch = PlanEpoch();
    const TimePoint begin = Now();

    change();

    ASSERT_TRUE(WaitUntil(kChangeMax, [&] { return PlanEpoch() > epoch; })) << name;
    const Duration planned = Now() - begin;
    ASSERT_TRUE(WaitForPrefill(before + 1));
    const Duration rest = Now() - begin;
    ASSERT_TRUE(WaitForPrefill(before + 2));
    const Duration p99 = decode_load_->P99(decoded);
    const Duration control = control_load_ == nullptr ? Duration() : control_load_->P99(controls);
    std::printf(
        "drill %s %s: planned after %.1f s, the prefill step of %.1f s ended after %.1f s, "
        "%d decode steps of %.3f s at p99 (%.3f before, %.3f where nothing changed), "
        "%d steps failed\n",
        name, GetParam().transport, Seconds(planned), Seconds(whole), Seconds(rest),
        decode_load_->steps() - decoded, Seconds(p99), Seconds(undisturbed_), Seconds(control),
        prefill_load_->failed() + decode_load_->failed());
    EXPECT_GE(whole, step_min_ / 2) << "too short to show anything";
    // With fewer steps the p99 is the slowest one, which says more about the machine.
    if (std::min(undisturbed_steps_, decode_load_->steps() - decoded) < 100) return;
    const Duration usual = std::max(undisturbed_, control);
    EXPECT_LE(p99, usual * 3 / 2 + Batch(usual)) << name;
  }
  // One batch of prefill, of which decode may have to wait for the rest; on late workers, where it
  // does not, one batch of decode, which takes `usual`.
  [[nodiscard]] Duration Batch(Duration usual) const {
    if (GetParam().late) return usual;
    return step_time_ * BatchOptions{}.rows_max / prefill_step_->tokens();
  }

  void Leave(std::size_t worker) { deployment_->worker_process(worker).Signal(SIGTERM); }
  void ExpectEnd(std::size_t worker) {
    SY_ASSERT_OK_AND_ASSIGN(const int status, deployment_->worker_process(worker).Wait(kChangeMax));
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  void RestartCoordinator() {
    deployment_->coordinator_process().Signal(SIGKILL);
    SY_ASSERT_OK(deployment_->coordinator_process().Wait(kChangeMax));
    SY_ASSERT_OK(deployment_->RestartCoordinator());
  }
  void ExpectNoStepFailed() {
    prefill_load_->Stop();
    decode_load_->Stop();
    SY_EXPECT_OK(prefill_load_->first_error());
    SY_EXPECT_OK(decode_load_->first_error());
    if (control_load_ != nullptr) {
      SY_EXPECT_OK(control_load_->first_error());
    }
    EXPECT_EQ(prefill_load_->failed(), 0);
    EXPECT_EQ(decode_load_->failed(), 0);
  }

  void ApplyWithBf16() {
    const std::string file = deployment_->directory() + "/again.yaml";
    std::ofstream(file) << "name: local\ncheckpoint: " << model_.path()
                        << "\nmin_workers: 2\ndispatcher_output_dtype: bf16\n";
    const testing::ProgramResult applied =
        testing::RunProgram({std::string(testing::kBinDir) + "/syctl", "--target",
                             deployment_->coordinator(), "apply", "-f", file});
    EXPECT_EQ(applied.code, 0) << applied.err;
  }

  const Duration step_min_ = StepTime(GetParam().late);
  const LargeCheckpoint model_{GetParam().late ? kLateShape : kShape, false};
  const testing::TempDir late_bin_;
  Mutex mutex_;
  CondVar never_;  // notified by nobody
  std::unique_ptr<Client> watcher_client_;
  std::unique_ptr<MoeSession> watcher_;  // follows the plan and submits nothing
  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> prefill_;
  std::unique_ptr<MoeSession> decode_;
  std::unique_ptr<SameStep> prefill_step_;
  Duration step_time_{};  // of prefill_step_, alone
  int undisturbed_steps_ = 0;
  Duration undisturbed_{};  // what decode takes beside prefill at p99, without a change
  std::unique_ptr<SameStep> decode_step_;
  std::unique_ptr<StepLoad> prefill_load_;
  std::unique_ptr<StepLoad> decode_load_;
  std::unique_ptr<LocalDeployment> control_deployment_;
  std::unique_ptr<Client> control_client_;
  std::unique_ptr<MoeSession> control_;
  std::unique_ptr<SameStep> control_step_;
  std::unique_ptr<StepLoad> control_load_;  // null where CPUs compute
};

TEST_P(PlannedChangeTest, FailsNoStep) {
  ASSERT_NO_FATAL_FAILURE(Start(2, "memory"));

  Change("join", Duration::max(), [this] { SY_EXPECT_OK(deployment_->AddWorker()); });
  Change("reapply", Duration::max(), [this] { ApplyWithBf16(); });
  Change("leave", kLeaveLead, [this] { Leave(1); });

  ExpectNoStepFailed();
  ExpectEnd(1);
}

TEST_P(PlannedChangeTest, OfProcessesThatRestartFailsNoStep) {
  const testing::TempDir folder;
  ASSERT_NO_FATAL_FAILURE(Start(3, "sqlite:" + folder.Join("store")));

  Change("leave", kLeaveLead, [this] { Leave(1); });
  ExpectEnd(1);
  Change("return", Duration::max(), [this] {
    RestartCoordinator();
    SY_EXPECT_OK(deployment_->RestartWorker(1));
  });

  ExpectNoStepFailed();
}

TEST_P(PlannedChangeTest, OfACoordinatorWithoutItsStoreFailsNoStep) {
  ASSERT_NO_FATAL_FAILURE(Start(2, "memory"));

  Change("coordinator", Duration::max(), [this] { RestartCoordinator(); });

  ExpectNoStepFailed();
}

// Too long for workers that compute.
class RollingRestartTest : public PlannedChangeTest {};

TEST_P(RollingRestartTest, OfAllWorkersFailsNoStep) {
  ASSERT_NO_FATAL_FAILURE(Start(3, "memory"));

  for (std::size_t worker = 0; worker < 3; ++worker) {
    Change("leave", kLeaveLead, [&] { Leave(worker); });
    ExpectEnd(worker);
    Change("return", Duration::max(), [&] { SY_EXPECT_OK(deployment_->RestartWorker(worker)); });
  }

  ExpectNoStepFailed();
}

const auto kNameOf = [](const auto& drill) { return std::string(drill.param.transport); };
INSTANTIATE_TEST_SUITE_P(Transport, PlannedChangeTest,
                         ::testing::Values(Drill{"shm", false}, Drill{"tcp", false},
                                           Drill{"gateway", false}),
                         kNameOf);
const auto kLateDrills =
    ::testing::Values(Drill{"shm", true}, Drill{"tcp", true}, Drill{"gateway", true});
INSTANTIATE_TEST_SUITE_P(Late, PlannedChangeTest, kLateDrills, kNameOf);
INSTANTIATE_TEST_SUITE_P(Late, RollingRestartTest, kLateDrills, kNameOf);

}  // namespace
}  // namespace switchyard
