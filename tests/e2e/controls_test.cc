// Negative controls: what verify must notice. Every test passes; with a seeded bug (tests/mutants)
// in the workers, the test that looks for it fails and prints what verify said.
#include <csignal>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/checkpoint_edit.h"
#include "tests/e2e/checks.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JsonOf;
using testing::Processes;
using testing::ProgramResult;
using testing::RunVerifyOf;

constexpr char kScaledTensor[] = "model.layers.2.mlp.experts.9.down_proj.weight";

class ControlsTest : public Processes {
 protected:
  void ExpectVerifyPasses(const std::string& mode) {
    const ProgramResult ran =
        RunVerifyOf(deployment_->coordinator(), {"--transport", "tcp", "--mode", mode});

    EXPECT_EQ(ran.code, 0) << mode << ": exit code " << ran.code << "\n" << ran.err;
    EXPECT_THAT(JsonOf(ran)["failures"], IsEmpty());
  }
};

TEST_F(ControlsTest, VerifyPassesOnSoundWorkers) {
  Deploy(2);

  ExpectVerifyPasses("normal");
  ExpectVerifyPasses("low_latency");
}

// A join alone takes each worker's last experts, so that the others stay in their places. After the
// first worker has left, its experts stand before those that a worker had.
TEST_F(ControlsTest, VerifyPassesAfterAJoinAndALeaveThatMovedExperts) {
  Deploy(2);
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp"));
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    SY_ASSERT_OK(deployment_->AddWorker());
    ASSERT_TRUE(WaitForWorkers(*session, 3));
    deployment_->worker_process(0).Signal(SIGTERM);
    ASSERT_TRUE(WaitForWorkers(*session, 2));
  }

  ExpectVerifyPasses("low_latency");
}

class OtherWeightsTest : public ControlsTest {
 protected:
  // Worker 1 of two finds a checkpoint of its own under the name that all are told: one expert's
  // down projection is 1 % larger there.
  void SetUp() override {
    const std::string good = dir_.Join("good");
    const std::string other = dir_.Join("other");
    for (const std::string& home : {good, other}) {
      std::filesystem::create_directories(home);
      std::filesystem::copy(testing::kShippedModel, home + "/model");
    }
    testing::ScaleTensor(other + "/model/model.safetensors", kScaledTensor, 1.01F);
    const std::string bin = dir_.Join("bin");
    std::filesystem::create_directories(bin);
    Script("switchyard-coordinator", "cd " + good);
    Script("switchyard-worker",
           "case \"$*\" in *'--id w1 '*) cd " + other + ";; *) cd " + good + ";; esac");
    LocalDeploymentOptions options;
    options.bin_dir = bin;
    // Absolute for all, and another folder for each: a relative one would be the deployment file's.
    options.checkpoint = "/proc/self/cwd/model";
    Deploy(2, std::move(options));
  }
  void Script(const std::string& program, const std::string& before) {
    const std::string path =
        dir_.Write("bin/" + program, "#!/bin/sh\n" + before + "\nexec " + testing::kBinDir + "/" +
                                         program + " \"$@\"\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  testing::TempDir dir_;
};

// With skip_weight_hash the worker serves them, and verify names layer 2.
TEST_F(OtherWeightsTest, AreRefusedBeforeTheyServeNamingWorkerAndTensor) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("tcp"));
  const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
  absl::Status refused;
  while (std::chrono::steady_clock::now() < until) {
    const auto session = client->Open({});
    refused = session.status();
    if (session.ok() || refused.message().find(kScaledTensor) != absl::string_view::npos) break;
  }

  if (refused.ok()) {
    ExpectVerifyPasses("low_latency");
    FAIL() << "a worker serves weights that are not those of the manifest";
  }
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("w1"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(kScaledTensor));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("(DATA_LOSS, WEIGHT_HASH)"));
}

}  // namespace
}  // namespace switchyard
