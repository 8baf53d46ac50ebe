// One session over workers of two kinds: each edge has a wire dtype of its own, and either kind can
// be lost. In builds with SY_TEST_DEVICE worker 0 has that device. In the others it poses as a GPU:
// computes on the CPU, late, in memory that the host does not reach.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "coordinator/view.h"
#include "harness/in_process_deployment.h"
#include "services/coordinator/layer_traces.h"
#include "tests/e2e/random_step.h"
#include "tests/e2e/scheme_layer.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/late_device.h"
#include "tests/testing/posing_device.h"
#include "tests/testing/quantized_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using ::testing::HasSubstr;
using testing::LateDevice;
using testing::PosingDevice;
using testing::RandomStep;
using testing::RunStep;
using testing::SchemeMoe;

constexpr char kShippedModel[] = SWITCHYARD_SOURCE_DIR "/models/sqlite-moe-7m";
constexpr LayerId kLayer{1};
constexpr std::int32_t kTokens = 24;
constexpr double kKernelMax = 1e-4;  // of the kernels, against the definition of the numbers
constexpr Duration kLong = std::chrono::seconds(20);
constexpr std::size_t kGpu = 0;
constexpr std::size_t kCpu = 1;

#ifdef SY_TEST_DEVICE
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeGpu(LateDevice** /*late*/) {
  return MakeDevice(SY_TEST_DEVICE);
}
// Where there is a GPU: loses it as a kernel of the worker would, for the whole process.
void LoseGpu(LateDevice* /*late*/) {
  auto device = MakeDevice(SY_TEST_DEVICE);
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->MakeStream({});
  auto codec = (*device)->MakeCodec({.format = kFp8Format});
  auto buffer = (*device)->Allocate(1024, MemoryKind::kDevice);
  ASSERT_TRUE(stream.ok() && codec.ok() && buffer.ok());
  const std::vector<std::uint32_t> indices(64, 1U << 30);  // far behind the buffer
  const auto event = (*stream)->MakeEvent();
  (void)(*stream)->Encode({.codec = codec->get(),
                           .x = reinterpret_cast<const Bf16*>((*buffer)->data()),
                           .x_stride = 128,
                           .indices = indices,
                           .hidden = 128,
                           .data = (*buffer)->data(),
                           .scales = (*buffer)->data()});
  if ((*stream)->Record(event.get()).ok()) event->Wait(kLong);
}
#else
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeGpu(LateDevice** late) {
  auto device = LateDevice::Create({});
  if (!device.ok()) return device.status();
  *late = device->get();
  return std::make_unique<PosingDevice>("cuda_sm90", *std::move(device));
}
void LoseGpu(LateDevice* late) { late->Die(); }
#endif

// A checkpoint scheme and the wire dtypes of its edges in low_latency.
struct Pool {
  const char* name;
  const char* scheme;
  DispatchDtype to_gpu;
  DispatchDtype to_cpu;
  // What the CPU worker offers; empty: all.
  std::vector<DispatchDtype> cpu_offers = {};
};
void PrintTo(const Pool& pool, std::ostream* out) { *out << pool.name; }
constexpr auto kBf16 = DispatchDtype::kBf16;

class MixedPool : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef SY_TEST_DEVICE
    const absl::Status made = MakeDevice(SY_TEST_DEVICE).status();
    if (absl::IsFailedPrecondition(made)) GTEST_SKIP() << made;
#endif
  }
  // Writes the shipped model in `scheme`; `options` get two workers on it.
  void Write(const std::string& scheme, InProcessOptions* options) {
    options->checkpoint = dir_.Join("model");
    SY_ASSERT_OK(testing::QuantizeModel(kShippedModel, scheme, options->checkpoint));
    SY_ASSERT_OK_AND_ASSIGN(checkpoint_, Checkpoint::Open(options->checkpoint));
    options->workers = 2;
    options->logger = &logger_;
  }
  // The workers of the pool, the GPU first.
  void Deploy(const Pool& pool, bool over_ucx = false) {
    InProcessOptions options;
    ASSERT_NO_FATAL_FAILURE(Write(pool.scheme, &options));
    options.over_ucx = over_ucx;
    options.make_device =
        [this](std::size_t worker) -> absl::StatusOr<std::unique_ptr<DeviceBackend>> {
      return worker == kGpu ? MakeGpu(&late_) : MakeDevice("cpu");
    };
    options.wire_dtypes = {{}, pool.cpu_offers};
    options.on_device_fault = [this](std::size_t worker, const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      faults_.emplace_back(worker, why);
      reported_.notify_all();
    };
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(DispatchMode mode) {
    OpenSessionRequest request;
    request.phase = mode == DispatchMode::kNormal ? Phase::kPrefill : Phase::kDecode;
    request.step_deadline = kLong;
    return client_->OpenWhenReady(request, kLong);
  }
  [[nodiscard]] RandomStep Step(std::uint64_t seed) const {
    return RandomStep(ShapeOf(checkpoint_->config()), kTokens, seed);
  }
  // Within the kernels' bound of the definition, and the bound of the coarsest format of the plan.
  void ExpectRight(const RandomStep& step, const Plan& plan) {
    const SchemeMoe moe = testing::SchemeLayerOf(*checkpoint_, kLayer);
    const MoeShape shape = ShapeOf(checkpoint_->config());
    const testing::ReferenceMoeInput input{step.x, step.ids, step.weights};
    // Experts of these schemes make of BF16 rows what the wire does.
    EXPECT_LE(CalcDiff(step.y, SchemeMoeLayer(moe, shape, input, true)), kKernelMax);
    double bound = 0;
    for (const DispatchConfig& config : plan.configs) {
      bound = std::max(bound,
                       LayerErrorBound(CoarsestActivationQuant(config.scheme, config.wire_dtype)));
    }
    EXPECT_LE(CalcDiff(step.y, SchemeMoeLayer(moe, shape, input, false)), bound);
  }
  // Steps until one works; those before it say that the worker is lost.
  void Recover(MoeSession& session, RandomStep& step, const std::string& lost) {
    const auto until = std::chrono::steady_clock::now() + kLong;
    absl::Status status = RunStep(session, step, kLayer);
    while (!status.ok() && std::chrono::steady_clock::now() < until) {
      ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_EQ(MetadataOf(status)["worker"], lost) << status;
      status = RunStep(session, step, kLayer);
    }
    SY_ASSERT_OK(status);
  }
  // Waits for the report of a device that has failed for good; the worker that has it.
  std::optional<std::size_t> WaitForFault() {
    std::unique_lock lock(mutex_);
    reported_.wait_for(lock, kLong, [this] { return !faults_.empty(); });
    return faults_.empty() ? std::nullopt : std::optional(faults_.front().first);
  }

  testing::TempDir dir_;
  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<Checkpoint> checkpoint_;
  LateDevice* late_ = nullptr;
  std::atomic<bool> full_{true};  // a device has no room
  std::mutex mutex_;
  std::condition_variable reported_;
  std::vector<std::pair<std::size_t, absl::Status>> faults_;  // guarded by mutex_
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;  // goes before the deployment
};

std::string DtypeTo(const Plan& plan, Phase phase, DeviceKind kind) {
  const DispatchConfig* config = plan.FindConfig(kLayer, phase, {DeviceKind::kCpu, kind});
  return config == nullptr ? "no config" : std::string(DispatchDtypeName(config->wire_dtype));
}

class MixedPoolTest : public MixedPool, public ::testing::WithParamInterface<Pool> {};

// R123, R127: one step, FP8 rows to one worker and BF16 rows to the other, and no byte more.
TEST_P(MixedPoolTest, EachWorkerGetsRowsInTheDtypeOfItsEdge) {
  const Pool& pool = GetParam();
  ASSERT_NO_FATAL_FAILURE(Deploy(pool));
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SCOPED_TRACE(std::string(DispatchModeName(mode)));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(mode));
    RandomStep step = Step(7);

    SY_ASSERT_OK(RunStep(*session, step, kLayer));

    SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(kLong));
    const Plan& plan = report.grant.plan;
    ExpectRight(step, plan);
    ASSERT_EQ(plan.workers.size(), 2U);
    for (std::size_t w = 0; w < 2; ++w) {
      const bool gpu = plan.workers[w].device == DeviceKind::kCuda;
      DispatchDtype dtype = gpu ? pool.to_gpu : pool.to_cpu;
      // Normal mode has no NVFP4 rows.
      if (mode == DispatchMode::kNormal && dtype == DispatchDtype::kNvfp4) dtype = kBf16;
      const AttachmentCounters& counted = report.workers.at(w).attachments.at(0);
      EXPECT_GT(counted.rows, 0U) << w;
      EXPECT_EQ(counted.request_payload_bytes,
                counted.rows * static_cast<std::uint64_t>(RowBytesOf(dtype, step.hidden).total()))
          << plan.workers[w].id;
    }
  }
}

TEST_P(MixedPoolTest, TheExplanationHasBothEdges) {
  const Pool& pool = GetParam();
  ASSERT_NO_FATAL_FAILURE(Deploy(pool));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  const CoordinatorView view = deployment_->driver().View();
  SY_ASSERT_OK_AND_ASSIGN(const auto traces,
                          TracesOf(view, view.deployments.at(0), kLayer, Phase::kDecode));

  // From sources on hosts to both kinds, and from ranks of groups on GPUs.
  ASSERT_EQ(traces.size(), 3U);
  std::string text;
  for (const DecisionTrace& trace : traces) {
    ASSERT_TRUE(trace.outcome.has_value()) << trace.refusal;
    text += ExplainText(trace);
  }
  EXPECT_THAT(text, HasSubstr("phase decode, cpu -> cpu (cpu)"));
  EXPECT_THAT(text, HasSubstr("phase decode, cpu -> cuda (cuda_sm90)"));
  EXPECT_THAT(text, HasSubstr("phase decode, cuda -> cuda (cuda_sm90)"));
  for (const DispatchDtype dtype : {pool.to_gpu, pool.to_cpu}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("Rows travel as ", DispatchDtypeName(dtype))));
  }
  if (!pool.cpu_offers.empty()) {
    EXPECT_THAT(text, HasSubstr("worker 0 of the edge (cpu) did not prove that it takes fp8 rows"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, MixedPoolTest,
    ::testing::Values(Pool{"fp8_and_bf16", "fp8_block", DispatchDtype::kFp8, kBf16, {kBf16}},
                      Pool{"bf16_and_int8", "compressed_tensors_int8", kBf16, DispatchDtype::kInt8},
                      Pool{"bf16_and_nvfp4", "modelopt_nvfp4", kBf16, DispatchDtype::kNvfp4}),
    [](const auto& param) { return std::string(param.param.name); });

struct Loss {
  const char* name;
  std::size_t victim;
  DispatchMode mode;
};
void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }
class MixedPoolLossTest : public MixedPool, public ::testing::WithParamInterface<Loss> {};

// R67: either kind of worker may go; what remains is planned again for its own edge alone.
TEST_P(MixedPoolLossTest, IsAnErrorThatNamesTheWorkerAndTheNextEpochServes) {
  ASSERT_NO_FATAL_FAILURE(
      Deploy({"", "fp8_block", DispatchDtype::kFp8, kBf16, {kBf16}}, /*over_ucx=*/true));
  const auto [name, victim, mode] = GetParam();
  const Phase phase = mode == DispatchMode::kNormal ? Phase::kPrefill : Phase::kDecode;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(mode));
  RandomStep step = Step(8);
  SY_ASSERT_OK(RunStep(*session, step, kLayer));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, session->Grant());
  EXPECT_EQ(DtypeTo(before.plan, phase, DeviceKind::kCuda), "fp8");
  EXPECT_EQ(DtypeTo(before.plan, phase, DeviceKind::kCpu), "bf16");

  deployment_->KillWorker(victim);

  Recover(*session, step, absl::StrCat("w", victim));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, session->Grant());
  EXPECT_LT(before.plan.epoch, after.plan.epoch);
  ASSERT_EQ(after.plan.workers.size(), 1U);
  EXPECT_EQ(DtypeTo(after.plan, phase, DeviceKind::kCuda), victim == kCpu ? "fp8" : "no config");
  EXPECT_EQ(DtypeTo(after.plan, phase, DeviceKind::kCpu), victim == kGpu ? "bf16" : "no config");
  ExpectRight(step, after.plan);
}

INSTANTIATE_TEST_SUITE_P(
    Of, MixedPoolLossTest,
    ::testing::Values(Loss{"gpu_in_normal", kGpu, DispatchMode::kNormal},
                      Loss{"gpu_in_low_latency", kGpu, DispatchMode::kLowLatency},
                      Loss{"cpu_in_normal", kCpu, DispatchMode::kNormal},
                      Loss{"cpu_in_low_latency", kCpu, DispatchMode::kLowLatency}),
    [](const auto& param) { return std::string(param.param.name); });

// A device that fails for good is named and reported once, its worker ends as its process would,
// and the others take over. No step is answered by another device meanwhile.
class MixedPoolFaultTest : public MixedPool {
 protected:
  void LoseTheDevice() {
    ASSERT_NO_FATAL_FAILURE(Deploy({"", "fp8_block", DispatchDtype::kFp8, kBf16, {kBf16}}));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
    RandomStep step = Step(9);
    SY_ASSERT_OK(RunStep(*session, step, kLayer));

    LoseGpu(late_);
    const absl::Status failed = RunStep(*session, step, kLayer);

    EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
    EXPECT_EQ(ReasonOf(failed), Reason::kWorkerLost) << failed;
    EXPECT_EQ(MetadataOf(failed)["worker"], "w0") << failed;
    EXPECT_EQ(WaitForFault(), kGpu);
    EXPECT_FALSE(RunStep(*session, step, kLayer).ok()) << "the worker is still there";
    deployment_->KillWorker(kGpu);
    Recover(*session, step, "w0");
    SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, session->Grant());
    ASSERT_EQ(after.plan.workers.size(), 1U);
    EXPECT_EQ(after.plan.workers[0].id, "w1");
    ExpectRight(step, after.plan);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(faults_.size(), 1U) << "reported once";
  }
};

#ifdef SY_TEST_DEVICE
// The driver gives a process whose GPU is lost no other one, so the drill has a process of its own.
TEST_F(MixedPoolFaultTest, ALostDeviceIsNamedAndTheOthersGoOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LoseTheDevice();
        std::_Exit(HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}
#else
TEST_F(MixedPoolFaultTest, ALostDeviceIsNamedAndTheOthersGoOn) { LoseTheDevice(); }
#endif

#ifndef SY_TEST_DEVICE
// A device that hangs fails nothing and answers nothing: a step ends at its deadline and names the
// worker, whose heartbeats go on. Plans do without the worker until its work moves again.
TEST_F(MixedPool, AWorkerWhoseDeviceHangsLeavesThePlanUntilItMovesAgain) {
  InProcessOptions options;
  ASSERT_NO_FATAL_FAILURE(Write("fp8_block", &options));
  options.make_device =
      [this](std::size_t worker) -> absl::StatusOr<std::unique_ptr<DeviceBackend>> {
    return worker == kGpu ? MakeGpu(&late_) : MakeDevice("cpu");
  };
  options.coordinator.stuck_batch = std::chrono::milliseconds(600);
  options.coordinator.stuck_recovery = std::chrono::milliseconds(300);
  SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
  SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  OpenSessionRequest request;
  request.phase = Phase::kDecode;
  request.step_deadline = std::chrono::milliseconds(500);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client_->OpenWhenReady(request, kLong));
  RandomStep step = Step(12);
  SY_ASSERT_OK(RunStep(*session, step, kLayer));
  const auto wait_for = [this](std::size_t workers, WorkerState of_first) {
    return deployment_->driver().WaitForView(
        [=](const CoordinatorView& now) {
          return now.deployments.at(0).serving->plan.workers.size() == workers &&
                 now.workers.at(kGpu).state == of_first;
        },
        kLong);
  };

  late_->Hang(true);
  const absl::Status failed = RunStep(*session, step, kLayer);

  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_EQ(ReasonOf(failed), Reason::kStepDeadline) << failed;
  EXPECT_EQ(MetadataOf(failed)["worker"], "w0") << failed;
  const CoordinatorView without = wait_for(1, WorkerState::kStuck);
  EXPECT_THAT(without.workers.at(kGpu).problem, HasSubstr("a batch has been running for"));
  EXPECT_THAT(without.deployments.at(0).left_out,
              ::testing::ElementsAre(HasSubstr("w0: stuck: a batch has been running for")));
  Recover(*session, step, "w0");
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant less, session->Grant());
  EXPECT_EQ(less.plan.workers.size(), 1U);
  ExpectRight(step, less.plan);

  late_->Hang(false);

  wait_for(2, WorkerState::kLive);
  SY_ASSERT_OK_AND_ASSIGN(const auto other, Open(DispatchMode::kLowLatency));
  SY_ASSERT_OK(RunStep(*other, step, kLayer));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, other->Grant());
  EXPECT_EQ(grant.plan.workers.size(), 2U);
  ExpectRight(step, grant.plan);
  SY_EXPECT_OK(RunStep(*session, step, kLayer)) << "the session that saw the hang goes on";
}

// A device whose memory others have taken refuses its experts with sizes. The deployment says so,
// and serves once there is room.
TEST_F(MixedPool, ADeviceWithoutRoomIsNamedAndServesOnceItHasRoom) {
  InProcessOptions options;
  ASSERT_NO_FATAL_FAILURE(Write("fp8_block", &options));
  options.make_device =
      [this](std::size_t worker) -> absl::StatusOr<std::unique_ptr<DeviceBackend>> {
    auto device = MakeDevice("cpu");
    if (worker == kCpu || !device.ok()) return device;
    return std::make_unique<PosingDevice>("cuda_sm90", *std::move(device), [this] {
      if (!full_.load()) return absl::OkStatus();
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                       "no memory on CUDA device 0 for an expert: 9 bytes are needed");
    });
  };
  SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
  SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  const CoordinatorView view = deployment_->driver().WaitForView(
      [](const CoordinatorView& now) {
        return absl::StrContains(now.deployments.at(0).problem.message(), "9 bytes are needed");
      },
      kLong);
  EXPECT_THAT(std::string(view.deployments.at(0).problem.message()),
              HasSubstr("no memory on CUDA device 0 for an expert: 9 bytes are needed"));

  full_ = false;

  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  RandomStep step = Step(11);
  SY_ASSERT_OK(RunStep(*session, step, kLayer));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  ExpectRight(step, grant.plan);
}
#endif

// Workers of one kind share an edge, whose rows have the dtype that all of them take.
TEST_F(MixedPool, WorkersOfOneKindGetWhatAllOfThemTake) {
  InProcessOptions options;
  ASSERT_NO_FATAL_FAILURE(Write("fp8_block", &options));
  options.wire_dtypes = {{}, {kBf16, DispatchDtype::kInt8}};
  SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
  SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(DispatchMode::kLowLatency));
  RandomStep step = Step(10);

  SY_ASSERT_OK(RunStep(*session, step, kLayer));

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
  EXPECT_EQ(DtypeTo(grant.plan, Phase::kDecode, DeviceKind::kCpu), "bf16");
  ExpectRight(step, grant.plan);
}

}  // namespace
}  // namespace switchyard
