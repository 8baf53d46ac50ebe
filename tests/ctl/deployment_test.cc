// The syctl program against a coordinator and workers that are processes of their own.
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/json.h"
#include "harness/local_deployment.h"
#include "tests/model/family_checkpoints.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using ::testing::HasSubstr;

class SyctlDeploymentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.bin_dir = SY_BIN_DIR;
    options.checkpoint = SY_SHIPPED_MODEL;
    options.workers = 2;
    options.worker_flags = {"--net-devices", "lo"};
    SY_ASSERT_OK_AND_ASSIGN(deployment_, LocalDeployment::Start(options));
  }
  // Runs syctl until it ends; its output is in out_ and err_.
  int Syctl(const std::string& words) {
    const std::string out = dir_.Join("out");
    const std::string err = dir_.Join("err");
    // `exec`, so that the process is syctl itself; its own pipe stays empty.
    const std::string command =
        absl::StrCat("exec ", SY_BIN_DIR, "/syctl --target ", deployment_->coordinator(), " ",
                     words, " >", out, " 2>", err);
    auto process = ChildProcess::Spawn({"/bin/sh", "-c", command}, dir_.Join("log"));
    EXPECT_THAT(process, testing::IsOk());
    if (!process.ok()) return -1;
    const auto status = process->Wait(std::chrono::seconds(30));
    EXPECT_THAT(status, testing::IsOk());
    out_ = testing::ReadBytes(out);
    err_ = testing::ReadBytes(err);
    return status.ok() && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  }
  // Until the deployment serves, at most a minute of tries.
  void WaitUntilServing(const std::string& deployment = "local") {
    const SteadyClock clock;
    const TimePoint end = clock.Now() + std::chrono::minutes(1);
    while (Syctl("get plan --deployment " + deployment) != 0) {
      ASSERT_LT(clock.Now(), end) << err_;
    }
  }

  const testing::TempDir dir_;
  std::unique_ptr<LocalDeployment> deployment_;
  std::string out_;
  std::string err_;
};

TEST_F(SyctlDeploymentTest, ShowsWhatServes) {
  WaitUntilServing();

  EXPECT_EQ(Syctl("get deployments -o table"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("local  sqlite-moe-7m  serving  1      0         "));
  EXPECT_EQ(Syctl("get workers -o table"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("w1  live   cpu "));
  EXPECT_THAT(out_, HasSubstr(deployment_->worker_address(1)));
  EXPECT_EQ(Syctl("get workers"), 0);  // JSON: its output is no terminal
  EXPECT_EQ(Json::parse(out_)["workers"].size(), 2U);
  EXPECT_EQ(Json::parse(out_)["workers"][0]["experts"], 4 * 8);
  EXPECT_EQ(Syctl("get layers -o table"), 0);
  EXPECT_THAT(out_, HasSubstr("3      16       16      2        normal bf16  low_latency bf16"));
  EXPECT_EQ(Syctl("get models"), 0);
  EXPECT_EQ(Json::parse(out_)["models"][0]["shape"]["top_k"], 4);
  EXPECT_EQ(Syctl("describe worker w0 -o table"), 0);
  EXPECT_THAT(out_, HasSubstr("local       0-3     0-7\n"));
  EXPECT_EQ(Syctl("explain layer 2 -o table"), 0);
  EXPECT_THAT(out_, HasSubstr("decode, cpu -> cpu: low_latency, bf16 out and bf16 back\n  - "));
  EXPECT_EQ(Syctl("version -o table"), 0);
  EXPECT_THAT(out_, HasSubstr(absl::StrCat("coordinator  0.1.0 at ", deployment_->coordinator())));
}

TEST_F(SyctlDeploymentTest, AppliesAFileAndSaysWhatIsWrongWithOne) {
  const std::string good =
      dir_.Write("good.yaml", absl::StrCat("name: second\ncheckpoint: ", SY_SHIPPED_MODEL, "\n"));
  const std::string bad = dir_.Write("bad.yaml", "name: third\ncheckpoint: /nowhere/model\n");

  EXPECT_EQ(Syctl("apply --dry-run -o table -f " + good), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("second  would be created"));
  EXPECT_THAT(out_, HasSubstr("second: checked; "));
  EXPECT_EQ(Syctl("describe deployment second"), 1);
  EXPECT_EQ(Syctl("apply -o table -f " + good), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("second  created"));
  EXPECT_EQ(Syctl("apply -o table -f " + good), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("second  unchanged"));
  EXPECT_EQ(Syctl("apply -f " + bad), 1);
  EXPECT_THAT(err_, HasSubstr("/nowhere/model"));
  EXPECT_THAT(err_, HasSubstr("reason      CHECKPOINT\n"));
  EXPECT_EQ(Syctl("apply"), 2);
}

// Two dense layers, then two with experts and a draft, of a model without a known decoder.
TEST_F(SyctlDeploymentTest, DeploysAModelOfAnotherFamily) {
  const testing::TempDir model;
  WriteFamily(testing::DeepseekFamily(), model);
  const std::string file =
      dir_.Write("ds.yaml", absl::StrCat("name: ds\ncheckpoint: ", model.path(), "\n"));

  EXPECT_EQ(Syctl("apply --dry-run -o table -f " + file), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("ds: checked; "));
  EXPECT_EQ(Syctl("apply -o table -f " + file), 0) << err_;
  WaitUntilServing("ds");

  EXPECT_EQ(Syctl("explain layer 4 --deployment ds -o table"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("decode, cpu -> cpu: low_latency, bf16 out and bf16 back\n  - "));
  EXPECT_EQ(Syctl("explain layer 0 --deployment ds"), 1);
  EXPECT_THAT(err_, HasSubstr("its MoE layers are: 2, 3, 4"));
}

TEST_F(SyctlDeploymentTest, ErrorsNameWhatIsThere) {
  WaitUntilServing();

  EXPECT_EQ(Syctl("explain layer 9"), 1);
  EXPECT_EQ(Json::parse(out_)["error"]["reason"], "UNKNOWN_LAYER");
  EXPECT_THAT(err_, HasSubstr("its MoE layers are: 0, 1, 2, 3"));
  EXPECT_EQ(Syctl("get plan --deployment other"), 1);
  EXPECT_EQ(Json::parse(out_)["error"]["metadata"]["deployment"], "other");
}

}  // namespace
}  // namespace switchyard::ctl
