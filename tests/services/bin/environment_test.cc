// Deprecated environment variables as processes see them: the coordinator reads them once and says
// so once, workers and clients do not know them.
#include <sys/wait.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "harness/child_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadBytes;

constexpr Duration kLong = std::chrono::seconds(30);
constexpr char kDeployment[] =
    "name: local\ncheckpoint: 'synthetic:hidden=64,intermediate=32,experts=16,top_k=4'\n";

// Variables of each process, "NAME=value".
struct Environments {
  std::vector<std::string> coordinator = {};
  std::vector<std::string> worker = {};
  std::vector<std::string> client = {};
};

// One coordinator, one worker and one client, each with an environment of its own.
class EnvironmentTest : public ::testing::Test {
 protected:
  void Start(const Environments& environments) {
    worker_.reset();
    coordinator_.reset();
    client_environment_ = environments.client;
    const std::string file = dir_.Write("local.yaml", kDeployment);
    SY_ASSERT_OK_AND_ASSIGN(coordinator_, Spawn("switchyard-coordinator", environments.coordinator,
                                                {"--listen", "127.0.0.1:0", "--deployment", file,
                                                 "--store", "memory"}));
    SY_ASSERT_OK_AND_ASSIGN(address_, coordinator_->WaitForLine("ready ", kLong));
    SY_ASSERT_OK_AND_ASSIGN(worker_, Spawn("switchyard-worker", environments.worker,
                                           {"--coordinator", address_, "--id", "w0"}));
    SY_ASSERT_OK(worker_->WaitForLine("ready ", kLong));
    const SteadyClock clock;
    const TimePoint end = clock.Now() + kLong;
    while (Syctl("get plan").empty()) ASSERT_LT(clock.Now(), end) << Log("syctl");
  }
  // The program's output; empty if it fails.
  std::string Syctl(const std::string& words) {
    const std::string out = dir_.Join("out");
    std::string command = "exec env";
    for (const std::string& variable : client_environment_)
      absl::StrAppend(&command, " ", variable);
    absl::StrAppend(&command, " ", SY_BIN_DIR, "/syctl --target ", address_, " ", words,
                    " -o table >", out);
    auto process = ChildProcess::Spawn({"/bin/sh", "-c", command}, dir_.Join("syctl"));
    EXPECT_THAT(process, testing::IsOk());
    if (!process.ok()) return "";
    const auto status = process->Wait(kLong);
    return status.ok() && WIFEXITED(*status) && WEXITSTATUS(*status) == 0 ? ReadBytes(out) : "";
  }
  [[nodiscard]] const testing::TempDir& dir() const { return dir_; }
  [[nodiscard]] std::string Log(const std::string& program) const {
    return ReadBytes(dir_.Join(program));
  }

 private:
  absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const std::string& program,
                                                      const std::vector<std::string>& environment,
                                                      const std::vector<std::string>& flags) {
    std::vector<std::string> argv{"/usr/bin/env"};
    argv.insert(argv.end(), environment.begin(), environment.end());
    argv.push_back(absl::StrCat(SY_BIN_DIR, "/", program));
    argv.insert(argv.end(), flags.begin(), flags.end());
    auto process = ChildProcess::Spawn(argv, dir_.Join(program));
    if (!process.ok()) return process.status();
    return std::make_unique<ChildProcess>(*std::move(process));
  }

  const testing::TempDir dir_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> worker_;
  std::string address_;
  std::vector<std::string> client_environment_;
};

// The lines of a plan's trail.
std::string Reasons(const std::string& explained) {
  std::string reasons;
  for (const absl::string_view line : absl::StrSplit(explained, '\n')) {
    if (absl::StartsWith(line, "  - ")) absl::StrAppend(&reasons, line, "\n");
  }
  return reasons;
}

// R2: BF16 by that rule, its source in the trace and in the deployment, and one line in the log.
TEST_F(EnvironmentTest, TheCoordinatorReadsTheVariableOfBf16AndSaysSoOnce) {
  Start({.coordinator = {"SGLANG_DEEPEP_BF16_DISPATCH=1"}});

  const std::string why = Syctl("explain layer 0");
  EXPECT_THAT(why, HasSubstr("rule 1 (bf16_flag): SGLANG_DEEPEP_BF16_DISPATCH (deprecated) is set "
                             "by the coordinator's environment"));
  EXPECT_THAT(Syctl("describe deployment local"),
              HasSubstr("SGLANG_DEEPEP_BF16_DISPATCH (deprecated) is set by the coordinator's "
                        "environment"));
  const std::string log = Log("switchyard-coordinator");
  const std::string text =
      "SGLANG_DEEPEP_BF16_DISPATCH is deprecated; write "
      "--dispatcher-output-dtype bf16 instead";
  EXPECT_THAT(log, HasSubstr(text));
  EXPECT_EQ(log.find(text), log.rfind(text)) << log;
}

TEST_F(EnvironmentTest, AValueThatIsNeitherYesNorNoIsRefused) {
  const testing::TempDir dir;
  auto process =
      ChildProcess::Spawn({"/usr/bin/env", "SGLANG_DEEPEP_BF16_DISPATCH=maybe",
                           absl::StrCat(SY_BIN_DIR, "/switchyard-coordinator"), "--store", "memory",
                           "--listen", "127.0.0.1:0", "--log-format", "text"},
                          dir.Join("log"));
  SY_ASSERT_OK(process);

  SY_ASSERT_OK_AND_ASSIGN(const int status, process->Wait(kLong));

  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2);
  EXPECT_THAT(ReadBytes(dir.Join("log")), HasSubstr("\"maybe\" is neither yes"));
}

// R2, R24: in a worker's and a client's environment the variables change nothing.
TEST_F(EnvironmentTest, WorkersAndClientsIgnoreTheVariables) {
  const std::vector<std::string> variables{"SGLANG_DEEPEP_BF16_DISPATCH=1",
                                           "DEEP_NORMAL_MODE_USE_INT8_QUANT=1"};
  Start({});
  const std::string without = Syctl("explain layer 0");
  ASSERT_THAT(without, HasSubstr("rule 3b (scheme)"));

  Start({.worker = variables, .client = variables});

  EXPECT_EQ(Syctl("explain layer 0"), without);
  EXPECT_THAT(Syctl("describe deployment local"), Not(HasSubstr("deprecated")));
  for (const char* const program : {"switchyard-coordinator", "switchyard-worker", "syctl"}) {
    EXPECT_THAT(Log(program), Not(HasSubstr("deprecated"))) << program;
  }
}

// R24: the variable of int8 on NPUs leaves a layer whose scheme is known as it is.
TEST_F(EnvironmentTest, TheVariableOfInt8ChangesNoLayerOfACpu) {
  Start({});
  const std::string layer = Syctl("describe layer 0");
  const std::string reasons = Reasons(Syctl("explain layer 0"));
  ASSERT_THAT(reasons, HasSubstr("wire dtype bf16"));

  Start({.coordinator = {"DEEP_NORMAL_MODE_USE_INT8_QUANT=1"}});

  EXPECT_EQ(Syctl("describe layer 0"), layer);
  const std::string explained = Syctl("explain layer 0");
  EXPECT_EQ(Reasons(explained), reasons);
  EXPECT_THAT(explained, HasSubstr("deprecated_npu_int8_flag"));
  EXPECT_THAT(Log("switchyard-coordinator"),
              HasSubstr("DEEP_NORMAL_MODE_USE_INT8_QUANT is deprecated"));
}

// One edge is there, another is a hypothesis and says so; neither needs a GPU or an NPU.
TEST_F(EnvironmentTest, ExplainAnswersForEdgesThatThePlanDoesNotHave) {
  Start({});

  EXPECT_THAT(Syctl("explain layer 0 --phase decode --edge cpu:cpu"),
              HasSubstr("\ndecode, cpu -> cpu: low_latency, bf16 out and bf16 back\n"));
  const std::string would = Syctl("explain layer 0 --phase decode --edge gpu:npu");
  EXPECT_THAT(would, HasSubstr("the plan has no edge gpu -> npu; this would be the decision"));
  EXPECT_THAT(would, HasSubstr("\ndecode, cuda_sm90 -> ascend_a2, cuda_sm90 -> ascend_a3"));
  EXPECT_THAT(would, HasSubstr(": would be low_latency, bf16 out and bf16 back\n"));
  EXPECT_THAT(would, Not(HasSubstr("prefill")));
}

TEST_F(EnvironmentTest, ADryRunShowsHowRowsWouldTravelAndWhomItWaitsFor) {
  Start({});
  const std::string two = dir().Write("two.yaml", absl::StrCat(kDeployment, "min_workers: 2\n"));

  const std::string found = Syctl("apply --dry-run -f " + two);

  EXPECT_THAT(found, HasSubstr("min_workers is not reached: 1 of 2 are connected (w0)"));
  EXPECT_THAT(found, HasSubstr("LAYERS  PHASE"));
  EXPECT_THAT(found, HasSubstr("decode   cpu -> cpu  low_latency  bf16  none"));
  const std::string stranger = dir().Write(
      "stranger.yaml",
      absl::StrCat(kDeployment, "layers:\n- layer: 77\n  dispatcher_output_dtype: bf16\n"));
  EXPECT_EQ(Syctl("apply -f " + stranger), "");
  EXPECT_THAT(Log("syctl"), HasSubstr("layer 77 is not an MoE layer"));
}

}  // namespace
}  // namespace switchyard
