// Workers that their peers cannot reach join under load: no step fails, no plan uses them, and the
// coordinator says why. One that is started right joins as ever.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "harness/child_process.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/random_step.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/silent_port.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::Processes;
using testing::RandomStep;
using testing::RunStep;
using testing::StepLoad;

constexpr MoeShape kShape{.hidden = 256, .intermediate = 128, .experts = 16, .top_k = 4};

class UnreachableWorkerTest : public Processes {
 protected:
  // A worker that advertises `endpoint`.
  void Join(const std::string& id, const std::string& endpoint) {
    SY_ASSERT_OK_AND_ASSIGN(
        ChildProcess process,
        ChildProcess::Spawn({absl::StrCat(testing::kBinDir, "/switchyard-worker"), "--listen",
                             "127.0.0.1:0", "--coordinator", deployment_->coordinator(), "--id", id,
                             "--advertise", endpoint, "--net-devices", "lo"},
                            absl::StrCat(logs_.path(), "/", id)));
    others_.push_back(std::move(process));
  }
  // What syctl says of a worker once its state is `state`.
  nlohmann::json WaitForState(const std::string& id, const std::string& state) {
    const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
    nlohmann::json found;
    while (std::chrono::steady_clock::now() < until) {
      const testing::ProgramResult got =
          testing::RunProgram({absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                               deployment_->coordinator(), "get", "workers", "-o", "json"});
      const auto all = nlohmann::json::parse(got.out, nullptr, false);
      if (all.is_discarded()) continue;
      for (const auto& worker : all.at("workers")) {
        if (worker.at("id") == id) found = worker;
      }
      if (!found.empty() && found.at("state") == state) return found;
    }
    ADD_FAILURE() << id << " is not " << state << ": " << found;
    return found;
  }

  testing::TempDir logs_;
  testing::SilentPort closed_;
  testing::SilentPort silent_;
  std::vector<ChildProcess> others_;
};

TEST_F(UnreachableWorkerTest, JoinsNoPlanAndFailsNoStep) {
  Deploy(2);
  ASSERT_NE(deployment_, nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  OpenSessionRequest request;
  request.phase = Phase::kDecode;
  request.step_deadline = std::chrono::seconds(20);
  SY_ASSERT_OK_AND_ASSIGN(const auto session,
                          client->OpenWhenReady(request, testing::kReadyTimeout));
  RandomStep step(kShape, 4, 7);
  StepLoad load([&] { return RunStep(*session, step, LayerId{0}); });

  // A port that nobody listens on, one whose connections nobody accepts, and another worker's.
  ASSERT_NO_FATAL_FAILURE(Join("closed", closed_.endpoint()));
  silent_.Listen();
  ASSERT_NO_FATAL_FAILURE(Join("silent", silent_.endpoint()));
  ASSERT_NO_FATAL_FAILURE(Join("wrong", deployment_->worker_address(0)));
  const nlohmann::json closed = WaitForState("closed", "unreachable");
  const nlohmann::json silent = WaitForState("silent", "unreachable");
  const nlohmann::json wrong = WaitForState("wrong", "unreachable");
  EXPECT_THAT(closed.value("problem", ""), HasSubstr("no worker answers"));
  EXPECT_THAT(silent.value("problem", ""), HasSubstr("no worker answers"));
  EXPECT_THAT(wrong.value("problem", ""), HasSubstr("worker w0 answers"));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, session->Grant());
  EXPECT_EQ(before.plan.epoch.value, 1U);

  SY_ASSERT_OK(deployment_->AddWorker());

  EXPECT_TRUE(WaitForWorkers(*session, 3));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, session->Grant());
  EXPECT_EQ(after.plan.epoch.value, 2U);
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
  EXPECT_GT(load.steps(), 100);
}

}  // namespace
}  // namespace switchyard
