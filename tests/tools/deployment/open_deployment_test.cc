// Deployments as the programs open them, of each kind. That their answers are right is for
// tests/e2e.
#include "tools/deployment/open_deployment.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "harness/local_deployment.h"
#include "tests/e2e/served_golden.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

MoeOptions Options(const std::string& transport) {
  MoeOptions options;
  options.workers = 2;
  options.transport = transport;
  options.bin_dir = SY_BIN_DIR;
  return options;
}

class OpenDeploymentTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OpenDeploymentTest, StartsWorkersOfItsOwn) {
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, Options(GetParam())));

  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());

  EXPECT_EQ(report.how, std::string("local deployment of 2 workers, ") + GetParam());
  ASSERT_EQ(report.workers.size(), 2U);
  for (const WorkerReport& worker : report.workers) EXPECT_THAT(worker.differences, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Transports, OpenDeploymentTest,
                         ::testing::Values("auto", "shm", "tcp", "gateway", "loopback"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// Workers do not count what their devices exchange.
TEST(OpenDeploymentOfTest, InLockstepNothingIsCompared) {
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, Options("group")));

  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());

  EXPECT_EQ(report.how, "local deployment of 2 workers, group");
  EXPECT_THAT(report.workers, IsEmpty());
  EXPECT_THAT(report.not_compared, HasSubstr("in lockstep"));
}

TEST(OpenDeploymentOfTest, UsesADeploymentThatRuns) {
  LocalDeploymentOptions local;
  local.bin_dir = SY_BIN_DIR;
  local.checkpoint = SY_SHIPPED_MODEL;
  local.workers = 1;
  local.worker_flags = {"--net-devices", "lo"};
  SY_ASSERT_OK_AND_ASSIGN(const auto running, LocalDeployment::Start(local));
  MoeOptions options = Options("auto");
  options.target = running->coordinator();
  options.mode = "low_latency";

  SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment("/not/read", options));

  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());
  EXPECT_EQ(report.how, "deployment at " + running->coordinator() + ", auto, low_latency");
  EXPECT_EQ(report.workers.size(), 1U);
}

std::vector<AttachmentCounters::Hit> HitsOf(MoeProvider& moe) {
  const auto report = moe.Report();
  return report.ok() ? report->hits : std::vector<AttachmentCounters::Hit>{};
}

// R1: what is asked for is planned, in the mode that is asked for, in both kinds of deployment.
TEST(OpenDeploymentOfTest, OwnDeploymentsArePlannedAsAsked) {
  for (const char* transport : {"loopback", "shm"}) {
    MoeOptions options = Options(transport);
    options.mode = "low_latency";
    options.dispatcher_output_dtype = "bf16";

    SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, options));

    SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());
    EXPECT_THAT(report.how, HasSubstr("low_latency, wire dtype bf16"));
    ASSERT_EQ(report.prefill.size(), 4U) << transport;
    EXPECT_EQ(report.prefill[3].mode, DispatchMode::kLowLatency);
    EXPECT_THAT(report.prefill[3].trail.at(1), HasSubstr("(explicit)")) << transport;
  }
}

TEST(OpenDeploymentOfTest, OwnWorkersUseTheDeviceThatIsAskedFor) {
  for (const char* transport : {"loopback", "shm"}) {
    MoeOptions options = Options(transport);
    options.device = "cpu:kernel_family=portable_fp32";

    SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, options));

    EXPECT_THAT(moe->Describe(), HasSubstr("portable_fp32")) << transport;
    options.device = "no_such_device";
    EXPECT_FALSE(OpenDeployment(SY_SHIPPED_MODEL, options).ok()) << transport;
  }
}

// The planner's own modes are auto's, so one of our own is planned as if nothing were asked for.
TEST(OpenDeploymentOfTest, OwnDeploymentsPlanAutoByPhase) {
  for (const char* transport : {"loopback", "shm"}) {
    MoeOptions options = Options(transport);
    options.mode = "auto";

    SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, options));

    EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, prefill, cpu -> cpu: normal"));
    EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, decode, cpu -> cpu: low_latency"));
    EXPECT_THAT(moe->Describe(), Not(HasSubstr("requested by the session"))) << transport;
  }
}

// A dtype that no expert takes is said at once, by the rule, and not after a minute of asking.
TEST(OpenDeploymentOfTest, ARefusedDtypeIsSaidAtOnceWithItsRule) {
  MoeOptions options = Options("loopback");
  options.dispatcher_output_dtype = "nvfp4";
  options.mode = "low_latency";
  const SteadyClock clock;
  const TimePoint begin = clock.Now();

  // Unquantized layers keep BF16 with any requested dtype; an INT8 checkpoint does not.
  SY_ASSERT_OK(OpenDeployment(SY_SHIPPED_MODEL, options));
  const testing::ServedGolden int8("w8a8_compressed");
  const auto refused = OpenDeployment(int8.path(), options);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("do not take nvfp4 rows"));
  EXPECT_LT(clock.Now() - begin, std::chrono::seconds(20));
}

TEST(OpenDeploymentOfTest, MagnitudesAreRecordedOnlyWhenAskedForAndNotOverAGateway) {
  for (const bool record : {false, true}) {
    MoeOptions options = Options("loopback");
    options.record_amax = record;
    SY_ASSERT_OK_AND_ASSIGN(const auto moe, OpenDeployment(SY_SHIPPED_MODEL, options));
    SeededRng rng(5);
    const std::vector<Bf16> x = testing::GaussianBf16(256, 1.0, rng);
    const std::vector<std::int32_t> ids{3, 7, 11, 15};
    const std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.125F};
    std::vector<float> y(256, std::numeric_limits<float>::quiet_NaN());
    SY_ASSERT_OK(moe->prefill().run({.layer = LayerId{1},
                                     .tokens = 1,
                                     .top_k = 4,
                                     .x = x,
                                     .ids = ids,
                                     .weights = weights,
                                     .y = y}));

    const auto hits = HitsOf(*moe);

    ASSERT_EQ(hits.size(), 4U);
    for (const AttachmentCounters::Hit& hit : hits) EXPECT_EQ(hit.inputs_amax > 0, record);
  }
  MoeOptions gateway = Options("gateway");
  gateway.record_amax = true;
  const auto refused = OpenDeployment(SY_SHIPPED_MODEL, gateway);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("cannot be recorded over a gateway"));
}

TEST(OpenDeploymentOfTest, LoopbackHasNoTarget) {
  MoeOptions options = Options("loopback");
  options.target = "127.0.0.1:1";

  EXPECT_THAT(OpenDeployment(SY_SHIPPED_MODEL, options),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST(OpenDeploymentOfTest, NamesAProgramThatIsNotThere) {
  const testing::TempDir empty;
  MoeOptions options = Options("auto");
  options.bin_dir = empty.path();

  const auto moe = OpenDeployment(SY_SHIPPED_MODEL, options);

  EXPECT_THAT(moe, FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
  EXPECT_THAT(std::string(moe.status().message()), HasSubstr(empty.Join("switchyard-coordinator")));
}

TEST(OpenDeploymentOfTest, NamesATargetThatIsNotThere) {
  MoeOptions options = Options("auto");
  options.target = "127.0.0.1:1";

  EXPECT_THAT(OpenDeployment(SY_SHIPPED_MODEL, options),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
