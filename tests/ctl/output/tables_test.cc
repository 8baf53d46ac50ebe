#include "ctl/output/tables.h"

#include "gtest/gtest.h"

#include "tests/ctl/messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::DeploymentMessage;
using switchyard::testing::FailsWith;
using switchyard::testing::ModelMessage;
using switchyard::testing::PlanMessage;
using switchyard::testing::ProblemMessage;
using switchyard::testing::SmallPlan;
using switchyard::testing::WorkerMessage;

TEST(TablesTest, ShowsDeploymentsWithTheirProblem) {
  v1::ListDeploymentsResponse list;
  *list.add_deployments() = DeploymentMessage();
  v1::Deployment& broken = *list.add_deployments();
  broken.mutable_spec()->set_name("other");
  broken.mutable_spec()->set_model("toy");
  broken.set_state(v1::DEPLOYMENT_STATE_PENDING);
  broken.set_activity("waiting for workers");
  *broken.mutable_problem() = ProblemMessage();

  EXPECT_EQ(
      DeploymentsTable(list, 0),
      "NAME   MODEL  STATE    EPOCH  SESSIONS  ACTIVITY\n"
      "local  toy    serving  3      2         serving epoch 3\n"
      "other  toy    pending  -      0         waiting for workers\n"
      "                                        WEIGHT_HASH: worker w1: tensor x is not that of "
      "the manifest\n");
}

TEST(TablesTest, ShowsAChangeInProgress) {
  v1::ListDeploymentsResponse list;
  v1::Deployment& changing = *list.add_deployments();
  changing = DeploymentMessage();
  *changing.mutable_serving_model() = ModelMessage();
  changing.mutable_spec()->set_model("big");
  changing.set_pending_epoch(4);
  changing.set_activity(
      "model big is coming: preparing epoch 4 (another model): waiting for w1 (34 of 48 experts, "
      "1.2 of 1.7 GiB, 412.0 MiB/s, 2 s left), w2 (not begun)");
  v1::Deployment& reading = *list.add_deployments();
  reading.mutable_spec()->set_name("next");
  reading.mutable_spec()->set_model("huge");
  reading.set_state(v1::DEPLOYMENT_STATE_READING);
  reading.set_activity("reading /models/huge (12.3 of 45.0 GiB, 1.1 GiB/s, 30 s left)");

  EXPECT_EQ(
      DeploymentsTable(list, 100),
      "NAME   MODEL  STATE    EPOCH  SESSIONS  ACTIVITY\n"
      "local  toy    serving  3      2         model big is coming: preparing epoch 4 (another "
      "model):\n"
      "                                        waiting for w1 (34 of 48 experts, 1.2 of 1.7 "
      "GiB, 412.0\n"
      "                                        MiB/s, 2 s left), w2 (not begun)\n"
      "next   huge   reading  -      0         reading /models/huge (12.3 of 45.0 GiB, 1.1 "
      "GiB/s, 30 s\n"
      "                                        left)\n");
}

TEST(TablesTest, KeepsWithinTheTerminal) {
  v1::ListDeploymentsResponse list;
  *list.add_deployments() = DeploymentMessage();
  list.mutable_deployments(0)->set_activity("waiting for workers: 1 of 2 connected (w0)");

  EXPECT_EQ(DeploymentsTable(list, 70),
            "NAME   MODEL  STATE    EPOCH  SESSIONS  ACTIVITY\n"
            "local  toy    serving  3      2         waiting for workers: 1 of 2\n"
            "                                        connected (w0)\n");
}

TEST(TablesTest, ShowsWorkersWithWhatTheyHold) {
  v1::ListWorkersResponse list;
  *list.add_workers() = WorkerMessage("w0");
  v1::Worker& second = *list.add_workers();
  second = WorkerMessage("worker-10");
  second.set_state(v1::WORKER_STATE_DISCONNECTED);
  second.clear_release();
  v1::ResidentEpoch& next = *second.add_resident();
  next.set_deployment("local");
  next.set_epoch(4);

  EXPECT_EQ(
      WorkersTable(list),
      R"(ID         STATE         DEVICE  KERNEL    RELEASE  TRANSPORTS  EXPERTS  HOLDS                        ENDPOINT
w0         live          cpu     amx_bf16  0.1.0    shm,tcp     6        local@3                      127.0.0.1:7001
worker-10  disconnected  cpu     amx_bf16  -        shm,tcp     6        local@3, local@4 (prepared)  127.0.0.1:7001
)");
}

TEST(TablesTest, ShowsModels) {
  v1::ListModelsResponse list;
  *list.add_models() = ModelMessage();

  EXPECT_EQ(ModelsTable(list),
            "NAME  MOE LAYERS  EXPERTS  TOP-K  HIDDEN  INTERMEDIATE  DEPLOYMENTS  CHECKPOINT\n"
            "toy   0-1 4       4        2      64      32            local        /models/toy\n");
}

TEST(TablesTest, SaysWhatToDoWhenThereIsNothing) {
  EXPECT_EQ(DeploymentsTable({}, 0),
            "There are no deployments; 'syctl apply -f FILE' creates one.\n");
  EXPECT_EQ(ModelsTable({}), "There are no models; 'syctl apply -f FILE' serves one.\n");
  EXPECT_EQ(WorkersTable({}),
            "There are no workers; 'switchyard-worker --coordinator HOST:PORT --id NAME' adds "
            "one.\n");
}

TEST(TablesTest, ShowsALineForEachLayer) {
  EXPECT_EQ(LayersTable(SmallPlan()),
            "LAYER  EXPERTS  COPIES  WORKERS  PREFILL      DECODE            MIXED\n"
            "0      4        4       2        normal bf16  low_latency bf16  -\n"
            "1      4        4       2        normal bf16  low_latency bf16  -\n"
            "4      4        5       2        normal bf16  low_latency bf16  -\n");
}

TEST(TablesTest, NamesEveryWayWhenEdgesDiffer) {
  Plan plan = SmallPlan();
  DispatchConfig config = plan.configs.front();
  config.edge.worker = DeviceKind::kCuda;
  config.wire_dtype = DispatchDtype::kFp8;
  plan.configs.insert(plan.configs.begin() + 1, config);

  EXPECT_NE(LayersTable(plan).find("normal bf16 / normal fp8 "), std::string::npos);
  plan.configs[1].wire_scale = ScaleKind::kUe8m0;
  EXPECT_NE(LayersTable(plan).find("normal bf16 / normal fp8_ue8m0"), std::string::npos);
  EXPECT_NE(PlanText(plan, Sha256("a plan")).find("fp8_ue8m0"), std::string::npos);
}

TEST(TablesTest, ShowsAPlanWithLayersThatAreAlikeOnOneLine) {
  EXPECT_EQ(PlanText(SmallPlan(), Sha256("a plan")),
            "deployment local, model toy, epoch 3\n"
            "plan " +
                Sha256("a plan").ToHex() +
                "\n"
                "4 experts, top-k 2, hidden 64, intermediate 32\n"
                "\n"
                "WORKER  DEVICE  KERNEL    LAYERS  EXPERTS  ENDPOINT\n"
                "w0      cpu     amx_bf16  0-1 4   0-1      127.0.0.1:7001\n"
                "w1      cpu     scalar    0-1     2-3      127.0.0.1:7002\n"
                "w1      cpu     scalar    4       0 2-3    127.0.0.1:7002\n"
                "\n"
                "LAYERS  PHASE    EDGE        MODE         WIRE  COMBINE  SCHEME  MAX TOKENS\n"
                "0-1 4   prefill  cpu -> cpu  normal       bf16  bf16     none    -\n"
                "0-1 4   decode   cpu -> cpu  low_latency  bf16  bf16     none    512\n");
}

TEST(TablesTest, ReadsAPlanAndRefusesHalfOfOne) {
  SY_ASSERT_OK_AND_ASSIGN(const HashedPlan plan, FromProto(PlanMessage()));

  EXPECT_EQ(plan.plan, SmallPlan());
  EXPECT_EQ(plan.hash, Sha256("a plan"));
  v1::GetPlanResponse half = PlanMessage();
  half.clear_plan();
  EXPECT_THAT(FromProto(half), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard::ctl
