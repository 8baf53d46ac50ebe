#include "ctl/coordinator_client.h"

#include "gtest/gtest.h"

#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ScriptedCoordinator;

TEST(CoordinatorClientTest, SendsWhatIsAskedAndReturnsTheAnswer) {
  ScriptedCoordinator coordinator;
  CoordinatorClient client(coordinator.endpoint(), std::chrono::seconds(20));
  v1::DeploymentSpec spec;
  spec.set_name("n");

  SY_ASSERT_OK_AND_ASSIGN(const auto applied, client.Apply(spec, /*dry_run=*/true));
  SY_ASSERT_OK_AND_ASSIGN(const auto workers, client.Workers());
  SY_ASSERT_OK_AND_ASSIGN(const auto models, client.Models());
  SY_ASSERT_OK_AND_ASSIGN(const auto deployments, client.Deployments());
  SY_ASSERT_OK_AND_ASSIGN(const auto plan, client.Plan("local"));
  SY_ASSERT_OK_AND_ASSIGN(const auto version, client.Version());

  EXPECT_EQ(applied.deployment().spec().name(), "n");
  ASSERT_EQ(coordinator.applied().size(), 1U);
  EXPECT_TRUE(coordinator.applied()[0].validate_only());
  EXPECT_EQ(workers.workers_size(), 2);
  EXPECT_EQ(models.models(0).name(), "toy");
  EXPECT_EQ(deployments.deployments(0).spec().name(), "local");
  EXPECT_EQ(plan.plan().epoch(), 3U);
  EXPECT_EQ(version.version(), "9.8.7");
}

TEST(CoordinatorClientTest, ErrorsOfTheCoordinatorComeAsTheyAre) {
  ScriptedCoordinator coordinator;
  CoordinatorClient client(coordinator.endpoint(), std::chrono::seconds(20));

  const auto missing = client.Deployment("other");

  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_EQ(MetadataOf(missing.status()).at("deployment"), "other");
}

TEST(CoordinatorClientTest, NamesACoordinatorThatIsNotThere) {
  std::string endpoint;
  {
    const ScriptedCoordinator gone;
    endpoint = gone.endpoint();
  }
  CoordinatorClient client(endpoint, std::chrono::seconds(20));

  const auto version = client.Version();

  EXPECT_THAT(version, FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
  EXPECT_EQ(MetadataOf(version.status()).at("endpoint"), endpoint);
}

}  // namespace
}  // namespace switchyard::ctl
