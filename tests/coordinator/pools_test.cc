// Deployments that name the pools whose workers hold their experts.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::MakeSpec;

constexpr std::int64_t kNoLimit = 0;

// Of one phase of the model, on one pool.
DeploymentSpec SpecOf(const std::string& name, Phase phase, const std::string& pool) {
  DeploymentSpec spec = MakeSpec(2);
  spec.name = name;
  spec.phases = {{phase, {}}};
  spec.pools = {pool};
  return spec;
}

OpenSessionRequest OrderOf(Phase phase) {
  OpenSessionRequest order;
  order.model = MakeSpec(1).model;
  order.phase = phase;
  return order;
}

std::string WorkersOf(const SessionGrant& grant) {
  std::string ids;
  for (const PlanWorker& worker : grant.plan.workers) ids += worker.id + " ";
  return ids;
}

TEST(PoolsTest, EachPhaseOfAModelIsServedByItsOwnPool) {
  Cluster cluster;
  cluster.Join("p0", kNoLimit, "prefill");
  cluster.Join("p1", kNoLimit, "prefill");
  cluster.Join("d0", kNoLimit, "decode");
  cluster.Join("d1", kNoLimit, "decode");
  cluster.Join("x0");
  SY_ASSERT_OK(cluster.Apply(SpecOf("m-prefill", Phase::kPrefill, "prefill")));
  SY_ASSERT_OK(cluster.Apply(SpecOf("m-decode", Phase::kDecode, "decode")));
  cluster.Advance(seconds(1));

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant prefill, cluster.Open(OrderOf(Phase::kPrefill)));
  EXPECT_EQ(WorkersOf(prefill), "p0 p1 ");
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant decode, cluster.Open(OrderOf(Phase::kDecode)));
  EXPECT_EQ(WorkersOf(decode), "d0 d1 ");
  // Neither serves mixed steps, so the caller has to choose.
  const absl::Status mixed = cluster.Open(OrderOf(Phase::kMixed)).status();
  EXPECT_THAT(mixed, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(mixed.message()), HasSubstr("m-decode, m-prefill"));
}

// Others do not count towards min_workers, and the deployment says what it waits for.
TEST(PoolsTest, WaitsForWorkersOfItsPools) {
  Cluster cluster;
  cluster.Join("x0");
  cluster.Join("x1", kNoLimit, "spare");
  DeploymentSpec spec = MakeSpec(1);
  spec.pools = {"decode", "prefill"};
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(30));
  EXPECT_EQ(cluster.Serving(), 0U);
  EXPECT_THAT(cluster.Deployment().activity,
              HasSubstr("no worker of pools decode, prefill can be used"));

  cluster.Join("d0", kNoLimit, "decode");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "d0");
  cluster.Join("p0", kNoLimit, "prefill");
  cluster.Join("x2");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "d0 p0");
}

// Also when it is applied again with other pools: make before break.
TEST(PoolsTest, MovesToThePoolsOfTheNewSpecification) {
  Cluster cluster;
  cluster.Join("a0", kNoLimit, "a");
  cluster.Join("b0", kNoLimit, "b");
  DeploymentSpec spec = MakeSpec(1);
  spec.pools = {"a"};
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(1));
  ASSERT_EQ(cluster.ServingWorkers(), "a0");

  spec.pools = {"b"};
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "b0");

  spec.pools = {};
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "a0 b0");
}

// A worker that comes back in another pool no longer serves the deployment of the first.
TEST(PoolsTest, AWorkerMayChangeItsPool) {
  Cluster cluster;
  cluster.Join("w0", kNoLimit, "a");
  cluster.Join("w1", kNoLimit, "a");
  DeploymentSpec spec = MakeSpec(1);
  spec.pools = {"a"};
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(1));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w1");

  cluster.BreakStream("w1");
  cluster.Join("w1", kNoLimit, "b");
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.ServingWorkers(), "w0");
}

TEST(PoolsTest, AWorkersPoolIsAName) {
  Cluster cluster;
  const FakeWorker& worker = cluster.Join("w0", kNoLimit, "a/b");
  ASSERT_TRUE(worker.closed.has_value());
  EXPECT_THAT(*worker.closed, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard
