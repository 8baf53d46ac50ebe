#include "worker/expert/device_fault.h"

#include <future>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/late_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_service.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeTransport;
using testing::LateDevice;
using testing::LayerOf;
using testing::MakeChunk;
using testing::MakePlan;
using testing::MakePrepare;
using testing::MakeTestStep;
using testing::StagerOf;
using testing::TestLayer;

constexpr Duration kSoon = std::chrono::seconds(30);
constexpr SessionId kSession{.high = 3, .low = 4};

absl::Status Fault(const char* text) {
  return WithScope(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, text),
                   FailureScope::kWorker);
}

TEST(DeviceFaultReportTest, TellsOfTheFirstFaultAndOfNothingElse) {
  std::vector<std::string> told;
  DeviceFaultReport report(
      [&](const absl::Status& why) { told.emplace_back(std::string(why.message())); });

  report.Look(absl::OkStatus());
  report.Look(MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "no memory"));
  report.Look(Fault("first"));
  report.Look(Fault("second"));

  EXPECT_EQ(told, std::vector<std::string>{"first"});
  DeviceFaultReport({}).Look(Fault("nobody listens"));
}

// A service on a device that dies when a test says so.
class DeviceFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(device_, LateDevice::Create({}));
    ExpertServiceOptions options;
    options.stager = StagerOf(1, device_.get());
    options.engine.on_device_fault = [this](const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      faults_.push_back(why);
    };
    SY_ASSERT_OK_AND_ASSIGN(service_,
                            ExpertService::Create(std::move(options), &transport_, &clock_));
  }
  absl::Status Stage(std::uint64_t epoch) {
    std::promise<absl::Status> done;
    service_->StagePlan(MakePrepare(MakePlan(epoch, 2)),
                        [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  std::vector<absl::Status> faults() {
    const std::lock_guard lock(mutex_);
    return faults_;
  }

  std::mutex mutex_;
  std::vector<absl::Status> faults_;  // guarded by mutex_
  std::unique_ptr<LateDevice> device_;
  FakeTransport transport_;
  SteadyClock clock_;
  std::unique_ptr<ExpertService> service_;
};

// The coordinator would otherwise offer this worker one plan after another.
TEST_F(DeviceFaultTest, AFaultWhileAnEpochIsStagedIsReportedOnce) {
  SY_ASSERT_OK(Stage(1));
  EXPECT_TRUE(faults().empty());
  device_->Die();

  for (const std::uint64_t epoch : {2U, 3U}) {
    EXPECT_THAT(Stage(epoch), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  }

  ASSERT_EQ(faults().size(), 1U);
  EXPECT_TRUE(IsDeviceFault(faults()[0]));
}

// Nobody new could attach to this worker, which would go on answering the coordinator.
TEST_F(DeviceFaultTest, ATransportThatMakesNoMoreLinksIsReportedOnce) {
  const Plan plan = MakePlan(1, 2);
  SY_ASSERT_OK(Stage(1));
  service_->Activate(plan.deployment, plan.epoch);
  transport_.FailLinks(Fault("no port is left"));

  for (int i = 0; i < 2; ++i) {
    const auto grant =
        service_->Attach(testing::MakeAttachRequest(plan, DispatchMode::kNormal), {}, kSoon);
    EXPECT_THAT(grant, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  }

  EXPECT_EQ(faults().size(), 1U);
}

// R125: a gateway's own sessions reach the device without a request that the engine would answer.
TEST_F(DeviceFaultTest, AFaultInARunOfTheGatewayIsReportedOnce) {
  const Plan plan = MakePlan(1, 2);
  SY_ASSERT_OK(Stage(1));
  service_->Activate(plan.deployment, plan.epoch);
  SY_ASSERT_OK(service_->direct().Bind({.deployment = plan.deployment,
                                        .session = kSession,
                                        .epoch = plan.epoch,
                                        .hash = HashOf(plan)}));
  SeededRng rng(5);
  const TestLayer layer = LayerOf(plan, LayerId{0});
  auto step = MakeTestStep(rng, layer, 7, DispatchMode::kLowLatency, 0.0);
  const auto chunk = MakeChunk(layer, step, WorkerOrdinal{1}, 0, step.plan.workers[1].rows.size());
  const auto run = [&]() -> absl::Status {
    auto started =
        service_->direct().Start({.deployment = plan.deployment,
                                  .session = kSession,
                                  .epoch = plan.epoch,
                                  .hash = HashOf(plan),
                                  .layer = layer.placement.layer,
                                  .mode = step.plan.mode,
                                  .format = kBf16Format,
                                  .count = static_cast<std::uint32_t>(chunk->planned.size()),
                                  .rows = reinterpret_cast<const std::byte*>(chunk->rows.data()),
                                  .metadata = std::as_bytes(std::span(chunk->words)),
                                  .out = chunk->out.data()});
    if (!started.ok()) return started.status();
    while (!(*started)->done()) std::this_thread::yield();
    return (*started)->Finish();
  };
  SY_ASSERT_OK(run());
  device_->Die();

  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(run(), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  }

  EXPECT_EQ(faults().size(), 1U);
}

}  // namespace
}  // namespace switchyard
