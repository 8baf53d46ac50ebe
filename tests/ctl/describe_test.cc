#include "ctl/describe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/device_profile.h"
#include "services/convert/plan.h"
#include "tests/ctl/messages.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::DeploymentMessage;
using switchyard::testing::ModelMessage;
using switchyard::testing::ProblemMessage;
using switchyard::testing::SmallPlan;
using switchyard::testing::StagingMessage;
using switchyard::testing::WorkerMessage;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DescribeTest, SaysAllOfADeployment) {
  EXPECT_EQ(DescribeDeploymentText(DeploymentMessage(), nullptr, 0),
            "name:          local\n"
            "model:         toy\n"
            "checkpoint:    /models/toy\n"
            "state:         serving\n"
            "activity:      serving epoch 3\n"
            "epoch:         3\n"
            "plan:          " +
                Sha256("a plan").ToHex() +
                "\n"
                "sessions:      2\n"
                "phases:        decode in low_latency, prefill\n"
                "pools:         all\n"
                "min workers:   2\n"
                "join timeout:  20 s\n"
                "former model:  ends at once\n"
                "max tokens:    512 in a step of low_latency\n"
                "wire dtype:    auto\n"
                "shape:         4 experts, top-k 2, hidden 64, intermediate 32\n"
                "MoE layers:    3 (0-1 4)\n"
                "manifest:      " +
                Sha256("a manifest").ToHex() +
                "\n"
                "left out:      -\n");
}

// Settings are those of what serves, also while another revision is refused or comes.
TEST(DescribeTest, SaysWhatServesAndWhatWasAppliedLast) {
  v1::Deployment deployment = DeploymentMessage();
  deployment.set_revision(2);
  deployment.set_serving_revision(1);
  v1::Revision serving;
  serving.set_number(1);
  *serving.mutable_spec() = deployment.spec();
  deployment.mutable_spec()->set_min_workers(5);

  const std::string text = DescribeDeploymentText(deployment, &serving, 0);

  EXPECT_THAT(text, HasSubstr("revision:      1 serves, 2 was applied last\n"));
  EXPECT_THAT(text, HasSubstr("min workers:   2\n"));
  EXPECT_THAT(text, HasSubstr("\nrevision 2 against revision 1, which serves:\n"
                              "- min_workers: 2\n+ min_workers: 5\n"));
}

TEST(DescribeTest, SaysWhyTheLastApplyFailed) {
  v1::Deployment deployment = DeploymentMessage();
  *deployment.mutable_apply_failure() = ProblemMessage();
  EXPECT_THAT(DescribeDeploymentText(deployment, nullptr, 0), HasSubstr("\nlast apply:    "));
}

TEST(DescribeTest, SaysWhatIsWrongAndWhatComes) {
  v1::Deployment deployment = DeploymentMessage();
  *deployment.mutable_problem() = ProblemMessage();
  deployment.set_pending_epoch(4);
  deployment.add_left_out("w7: no memory");
  deployment.add_left_out("w8: no memory");

  const std::string text = DescribeDeploymentText(deployment, nullptr, 60);

  EXPECT_THAT(text, HasSubstr("problem:       worker w1: tensor x is not that of the\n"
                              "               manifest (DATA_LOSS, WEIGHT_HASH)\n"));
  EXPECT_THAT(text, HasSubstr("epoch:         3, then 4\n"));
  EXPECT_THAT(text, HasSubstr("left out:      w7: no memory\n               w8: no memory\n"));
}

TEST(DescribeTest, SaysWhichModelServesWhichComesAndHowFarThatIs) {
  v1::Deployment deployment = DeploymentMessage();
  *deployment.mutable_serving_model() = ModelMessage();
  deployment.mutable_spec()->set_model("big");
  deployment.mutable_spec()->set_checkpoint("/models/big");
  deployment.set_manifest_hash(std::string(32, 'x'));
  deployment.mutable_shape()->set_experts(999);
  deployment.set_pending_epoch(4);
  *deployment.add_staging() = StagingMessage("w1");
  deployment.mutable_reading()->set_checkpoint("/models/huge");

  const std::string text = DescribeDeploymentText(deployment, nullptr, 0);

  EXPECT_THAT(text, HasSubstr("model:         toy\n"
                              "checkpoint:    /models/toy\n"
                              "coming:        model big, from /models/big, epoch 4\n"
                              "reading:       /models/huge: not begun\n"
                              "state:         serving\n"));
  EXPECT_THAT(text, HasSubstr("shape:         4 experts,"));
  EXPECT_THAT(text, HasSubstr("manifest:      " + Sha256("a manifest").ToHex()));
  EXPECT_THAT(text, HasSubstr("left out:      -\n"
                              "\n"
                              "WORKER  STEP     EXPERTS   LOADED          RATE         LEFT  NOTE\n"
                              "w1      loading  34 of 48  1.0 of 1.5 GiB  412.0 MiB/s  2 s   -\n"));
}

TEST(DescribeTest, SaysWhatAWorkerLoads) {
  v1::Worker worker = WorkerMessage("w1");
  *worker.add_staging() = StagingMessage("w1");

  EXPECT_THAT(DescribeWorkerText(worker, {}),
              HasSubstr("\n\nPREPARES  EPOCH  STEP     EXPERTS   LOADED "));
}

TEST(DescribeTest, ADeploymentWhoseCheckpointIsReadHasNoFactsYet) {
  v1::Deployment deployment;
  deployment.mutable_spec()->set_name("next");
  deployment.mutable_spec()->set_model("huge");
  deployment.set_state(v1::DEPLOYMENT_STATE_READING);

  const std::string text = DescribeDeploymentText(deployment, nullptr, 0);

  EXPECT_THAT(text, HasSubstr("model:         huge\n"));
  EXPECT_THAT(text, HasSubstr("state:         reading\n"));
  EXPECT_THAT(text, HasSubstr("shape:         -\n"));
}

TEST(DescribeTest, SaysWhoAskedForTheWireDtype) {
  v1::Deployment deployment = DeploymentMessage();
  deployment.mutable_coordinator_defaults()->set_dispatcher_output_dtype(v1::DTYPE_CHOICE_FP8);
  deployment.mutable_coordinator_defaults()->set_bf16_dispatch_flag("the environment");

  const std::string by_default = DescribeDeploymentText(deployment, nullptr, 0);
  deployment.mutable_spec()->set_dispatcher_output_dtype(v1::DTYPE_CHOICE_AUTO);
  const std::string by_itself = DescribeDeploymentText(deployment, nullptr, 0);

  EXPECT_THAT(by_default,
              HasSubstr("wire dtype:    fp8, the coordinator's default\n"
                        "               SGLANG_DEEPEP_BF16_DISPATCH (deprecated) is set by the "
                        "environment\n"));
  EXPECT_THAT(by_itself, HasSubstr("wire dtype:    auto, set by the deployment\n"));
}

TEST(DescribeTest, SaysAllOfAModel) {
  EXPECT_EQ(DescribeModelText(ModelMessage(), {DeploymentMessage()}, 0),
            "name:         toy\n"
            "checkpoint:   /models/toy\n"
            "shape:        4 experts, top-k 2, hidden 64, intermediate 32\n"
            "MoE layers:   3 (0-1 4)\n"
            "manifest:     " +
                Sha256("a manifest").ToHex() +
                "\n"
                "deployments:  local: serving, serving epoch 3\n");
}

TEST(DescribeTest, SaysAllOfAWorker) {
  EXPECT_EQ(DescribeWorkerText(WorkerMessage("w1"), {SmallPlan()}),
            "id:             w1\n"
            "incarnation:    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
            "endpoint:       127.0.0.1:7001\n"
            "pool:           -\n"
            "state:          live\n"
            "problem:        -\n"
            "lease left:     1.5 s\n"
            "progress:       17 turns of its data thread\n"
            "device:         cpu, limits of profile cpu\n"
            "kernel family:  amx_bf16\n"
            "wire dtypes:    bf16\n"
            "schemes:        none\n"
            "transports:     shm, tcp, by UCX 1.13.1\n"
            "release:        0.1.0\n"
            "protocol:       version 2\n"
            "max top-k:      32\n"
            "weight memory:  1.5 GiB\n"
            "GDN:            verify drafts with triton; two-dimensional grids work\n"
            "experts:        6\n"
            "\n"
            "DEPLOYMENT  EPOCH  STATE      PLAN\n"
            "local       3      committed  " +
                Sha256("a plan").ToHex().substr(0, 12) +
                "\n"
                "\n"
                "DEPLOYMENT  LAYERS  EXPERTS\n"
                "local       0-1     2-3\n"
                "local       4       0 2-3\n");
}

// R124: an engine's operator reads what the worker's device can run of GDN.
TEST(DescribeTest, SaysWhatAWorkersDeviceCanRunOfGdn) {
  const auto text = [](const char* profile) {
    CapabilitySet can;
    can.gdn = GdnFactsOf(*FindDeviceProfile(profile));
    v1::Worker worker = WorkerMessage("w1");
    Encode(can, worker.mutable_capabilities());
    return DescribeWorkerText(worker, {});
  };

  EXPECT_THAT(text("cuda_sm90"), HasSubstr("verify drafts with flashinfer; two-dimensional grids "
                                           "work\n"));
  EXPECT_THAT(text("cuda_sm100"), HasSubstr("verify drafts with triton; two-dimensional grids "
                                            "work\n"));
  EXPECT_THAT(text("ascend_a3"), HasSubstr("verify drafts with triton; no kernels with "
                                           "two-dimensional grids\n"));
  v1::Worker silent = WorkerMessage("w1");
  silent.mutable_capabilities()->clear_gdn();
  EXPECT_THAT(DescribeWorkerText(silent, {}), HasSubstr("GDN:            -\n"));
}

TEST(DescribeTest, AWorkerThatHoldsNothingHasNoEmptyTables) {
  v1::Worker worker = WorkerMessage("w9");
  worker.clear_resident();

  EXPECT_THAT(DescribeWorkerText(worker, {}), Not(HasSubstr("DEPLOYMENT")));
}

TEST(DescribeTest, BytesHaveTheLargestUnitThatFits) {
  EXPECT_EQ(BytesText(0), "no limit");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(std::uint64_t{80} << 30), "80 GiB");
  EXPECT_EQ(BytesText(std::uint64_t{5000} << 40), "5000 TiB");
}

}  // namespace
}  // namespace switchyard::ctl
