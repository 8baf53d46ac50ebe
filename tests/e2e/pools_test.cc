// Prefill and decode of one model on workers of their own.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::Processes;
using testing::RunProgram;
using testing::RunStep;
using testing::TempDir;

constexpr std::int32_t kLayer = 2;

class PoolsTest : public Processes {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.flags_in_turn = {{"--pool", "prefill"}, {"--pool", "decode"}};
    Deploy(4, std::move(options));
    Syctl({"delete", "deployment", "local", "--now", "--wait"});
    Syctl({"apply", "-f", dir_.Write("both.yaml", Both()), "--wait"});
  }
  static std::string Both() { return absl::StrCat(Of("prefill"), "---\n", Of("decode")); }
  static std::string Of(const std::string& phase) {
    return absl::StrCat("name: m-", phase,
                        "\nmodel: m\nmin_workers: 2\ncheckpoint: ", testing::kShippedModel,
                        "\npools: [", phase, "]\nphases: [{phase: ", phase, "}]\n");
  }
  void Syctl(std::vector<std::string> words) {
    words.insert(words.begin(), absl::StrCat(testing::kBinDir, "/syctl"));
    words.insert(words.end(), {"--target", deployment_->coordinator()});
    const testing::ProgramResult result = RunProgram(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  // Runs steps in a session of `phase` and returns the workers that counted rows of it.
  void RunSteps(Phase phase, std::string* workers) {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
    OpenSessionRequest order;
    order.model = "m";
    order.phase = phase;
    SY_ASSERT_OK_AND_ASSIGN(const auto session,
                            client->OpenWhenReady(order, testing::kReadyTimeout));
    Batch batch(16, 7);
    for (int i = 0; i < 5; ++i) SY_ASSERT_OK(RunStep(*session, batch, kLayer));
    SY_ASSERT_OK_AND_ASSIGN(const auto report, session->Report(std::chrono::seconds(5)));
    for (const auto& worker : report.workers) {
      for (const AttachmentCounters& each : worker.attachments) {
        EXPECT_GT(each.rows, 0U) << each.worker_id;
        *workers += each.worker_id + " ";
      }
    }
  }

  TempDir dir_;
};

TEST_F(PoolsTest, RowsOfAPhaseReachItsWorkersOnly) {
  std::string prefill;
  std::string decode;
  RunSteps(Phase::kPrefill, &prefill);
  RunSteps(Phase::kDecode, &decode);
  EXPECT_EQ(prefill, "w0 w2 ");
  EXPECT_EQ(decode, "w1 w3 ");
}

}  // namespace
}  // namespace switchyard
