// Deployments as the programs open them, of each kind. That their answers are right is for
// tests/e2e.
#include "examples/qwen3_moe/open_deployment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "deploy/local/local_deployment.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

  EXPECT_EQ(report.how, std::string("own deployment of 2 workers, ") + GetParam());
  ASSERT_EQ(report.workers.size(), 2U);
  for (const WorkerReport& worker : report.workers) EXPECT_THAT(worker.differences, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Transports, OpenDeploymentTest,
                         ::testing::Values("auto", "shm", "tcp", "gateway", "loopback"),
                         [](const auto& param_info) { return std::string(param_info.param); });

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
