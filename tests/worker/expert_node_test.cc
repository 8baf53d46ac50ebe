// A whole expert node under a real coordinator, both in this process. What its parts do is tested
// beside them, that its rows are right in tests/e2e/loopback_test.cc.
#include "worker/expert_node.h"

#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/driver.h"
#include "coordinator/store/memory_store.h"
#include "services/in_process/agent_channel.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/loopback/hub.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;

constexpr Duration kLong = std::chrono::seconds(30);
constexpr char kModel[] = "synthetic:hidden=64,intermediate=32,experts=4,top_k=2,layers=2,seed=5";

class ExpertNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(driver_, Driver::Create({}, {.store = std::make_unique<MemoryStore>(),
                                                         .check_model = CheckModelFacts,
                                                         .load_model = LoadModelFacts,
                                                         .clock = &clock_,
                                                         .rng = &rng_,
                                                         .logger = &logger_}));
    agents_ = MakeInProcessAgentChannel(driver_.get());
    ExpertNodeOptions options;
    options.worker_id = "w0";
    options.incarnation = {3, 4};
    SY_ASSERT_OK_AND_ASSIGN(options.device, MakeDevice("cpu"));
    SY_ASSERT_OK_AND_ASSIGN(
        options.transport,
        MakeTransport("loopback", {.incarnation = options.incarnation, .hub = &hub_}));
    options.transport_names = {"inproc"};
    options.weight_bytes_max = 1 << 20;
    options.clock = &clock_;
    options.rng = &rng_;
    options.logger = &logger_;
    node_ = *ExpertNode::Create(std::move(options));
  }

  void Apply() {
    DeploymentSpec spec;
    spec.name = "demo";
    spec.checkpoint = kModel;
    auto applied = std::make_shared<std::promise<absl::Status>>();
    driver_->ApplyDeployment(spec, /*dry_run=*/false,
                             [applied](const absl::StatusOr<DeploymentView>& deployment) {
                               applied->set_value(deployment.status());
                             });
    std::future<absl::Status> result = applied->get_future();
    ASSERT_EQ(result.wait_for(kLong), std::future_status::ready);
    SY_ASSERT_OK(result.get());
  }
  void Join() {
    node_->Join(agents_.get(), "inproc:w0",
                [this](absl::Status why) { finished_.set_value(std::move(why)); });
  }
  bool Eventually(const std::function<bool()>& condition) {
    const TimePoint end = clock_.Now() + kLong;
    while (!condition()) {
      if (clock_.Now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  SteadyClock clock_;
  SystemRng rng_;
  Logger logger_{"test", LogLevel::kOff};
  LoopbackHub hub_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<AgentChannel> agents_;
  std::promise<absl::Status> finished_;
  std::unique_ptr<ExpertNode> node_;
};

TEST_F(ExpertNodeTest, AdvertisesItsDeviceWithTheTransportsAndMemoryThatItWasGiven) {
  Join();
  ASSERT_TRUE(Eventually([this] { return !driver_->View().workers.empty(); }));

  const WorkerView worker = driver_->View().workers.at(0);

  EXPECT_EQ(worker.id, "w0");
  EXPECT_EQ(worker.incarnation, (Incarnation{3, 4}));
  EXPECT_EQ(worker.endpoint, "inproc:w0");
  EXPECT_EQ(worker.capabilities, node_->capabilities());
  EXPECT_THAT(worker.capabilities.transports, ElementsAre("inproc"));
  EXPECT_EQ(worker.capabilities.weight_bytes_max, 1 << 20);
}

// What an operator withholds, plans do without.
TEST_F(ExpertNodeTest, OffersTheWireDtypesThatItIsGiven) {
  const auto create = [this](std::vector<DispatchDtype> wire_dtypes) {
    ExpertNodeOptions options;
    options.device = *MakeDevice("cpu");
    options.transport = *MakeTransport("loopback", {.incarnation = {5, 6}, .hub = &hub_});
    options.wire_dtypes = std::move(wire_dtypes);
    options.clock = &clock_;
    options.rng = &rng_;
    options.logger = &logger_;
    return ExpertNode::Create(std::move(options));
  };
  SY_ASSERT_OK_AND_ASSIGN(const auto node, create({DispatchDtype::kInt8, DispatchDtype::kBf16}));

  EXPECT_THAT(node->capabilities().wire_dtypes,
              ElementsAre(DispatchDtype::kBf16, DispatchDtype::kInt8));
  EXPECT_THAT(create({DispatchDtype::kFp8}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST_F(ExpertNodeTest, StagesAndServesWhatTheCoordinatorPlans) {
  ASSERT_NO_FATAL_FAILURE(Apply());
  EXPECT_FALSE(node_->agent_view().registered);

  Join();

  ASSERT_TRUE(Eventually(
      [this] { return driver_->View().deployments.at(0).state == DeploymentState::kServing; }));
  const AgentView view = node_->agent_view();
  EXPECT_TRUE(view.registered);
  ASSERT_EQ(view.resident.size(), 1U);
  EXPECT_EQ(view.resident[0].epoch, Epoch{1});
  SY_ASSERT_OK_AND_ASSIGN(const ExpertServiceView experts, node_->experts().View(kLong));
  ASSERT_EQ(experts.resident.size(), 1U);
  EXPECT_TRUE(experts.resident[0].committed);
}

TEST_F(ExpertNodeTest, ItsOwnExpertsRefuseAnEpochThatIsNotHere) {
  OwnChunk chunk;
  chunk.deployment = "demo";
  chunk.epoch = Epoch{9};

  EXPECT_THAT(node_->own_experts().Start(chunk).status(),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(ExpertNodeTest, LeavesWhenItIsAskedTo) {
  Join();
  ASSERT_TRUE(Eventually([this] { return !driver_->View().workers.empty(); }));

  node_->Leave();

  std::future<absl::Status> end = finished_.get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  SY_EXPECT_OK(end.get());
}

TEST_F(ExpertNodeTest, StopsWithoutHavingJoinedAndTwice) {
  node_->Leave();
  node_->Stop(Duration::zero());
  node_->Stop(Duration::zero());

  EXPECT_FALSE(node_->agent_view().registered);
}

}  // namespace
}  // namespace switchyard
