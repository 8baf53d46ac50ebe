// Every verb that changes something, one after the other, while two sessions compute without a
// pause: one low_latency, one normal. No step fails, answers keep the bits that they are promised,
// and what each verb says after --wait is so.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/batch.h"
#include "tests/e2e/lifecycle.h"

namespace switchyard {
namespace {

using testing::Batch;
using ::testing::HasSubstr;
using testing::Json;
using testing::kProgramMax;
using testing::ProgramResult;
using testing::RunStep;
using testing::StepLoad;

constexpr std::int32_t kLayers = 4;

// The same batches of all layers again and again. One load's thread runs it, and others read it
// when that has ended.
class RepeatedLayers {
 public:
  RepeatedLayers(std::int32_t tokens, std::uint64_t seed) {
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      layers_.push_back({Batch(tokens, seed + static_cast<std::uint64_t>(layer)), {}, 0});
    }
  }
  absl::Status RunNext(MoeSession& session) {
    Layer& layer = layers_[next_];
    Batch& batch = layer.batch;
    batch.y.assign(batch.y.size(), std::numeric_limits<float>::quiet_NaN());
    const absl::Status status = RunStep(session, batch, static_cast<std::int32_t>(next_));
    next_ = (next_ + 1) % layers_.size();
    if (!status.ok()) return status;
    if (!layer.last.empty() && layer.last != batch.y) ++layer.changes;
    layer.last = batch.y;
    return absl::OkStatus();
  }
  [[nodiscard]] bool ran() const { return !layers_.back().last.empty(); }
  // How many times the answer of some layer was not the one before, of the worst.
  [[nodiscard]] int changes() const {
    int most = 0;
    for (const Layer& layer : layers_) most = std::max(most, layer.changes);
    return most;
  }
  [[nodiscard]] std::vector<std::vector<float>> answers() const {
    std::vector<std::vector<float>> all;
    for (const Layer& layer : layers_) all.push_back(layer.last);
    return all;
  }

 private:
  struct Layer {
    Batch batch;
    std::vector<float> last;  // compared with ==, so that a NaN is a change each time
    int changes;
  };
  std::vector<Layer> layers_;
  std::size_t next_ = 0;
};

class AllVerbsTest : public testing::Lifecycle {
 protected:
  void SetUp() override {
    Lifecycle::SetUp();
    if (HasFatalFailure()) return;
    // Nothing disturbs these.
    for (std::int32_t step = 0; step < 2 * kLayers; ++step) {
      SY_ASSERT_OK(low_latency_.RunNext(*sessions_[0]));
      SY_ASSERT_OK(normal_.RunNext(*sessions_[1]));
    }
    undisturbed_ = low_latency_.answers();
    ASSERT_EQ(low_latency_.changes() + normal_.changes(), 0);
    first_epoch_ = Epochs();
    loads_.push_back(
        std::make_unique<StepLoad>([this] { return low_latency_.RunNext(*sessions_[0]); }));
    loads_.push_back(std::make_unique<StepLoad>([this] { return normal_.RunNext(*sessions_[1]); }));
  }

  // The number of the epoch that serves.
  int Epochs() { return Deployment("local")["committed_epoch"]; }
  Json Deployment(const std::string& name) {
    return Json::parse(Do({"get", "deployment", name}))["deployments"][0];
  }
  Json Wait(std::vector<std::string> words) {
    words.insert(words.end(), {"--wait", "-o", "json"});
    Json result = Json::parse(Do(words), nullptr, false);
    ExpectStepsGoOn();
    return result;
  }
  std::vector<std::string> WorkersOf(const std::string& deployment) {
    std::vector<std::string> ids;
    const Json plan = Json::parse(Do({"get", "plan", deployment}));
    for (const Json& worker : plan["plan"]["workers"]) ids.push_back(worker["id"]);
    return ids;
  }
  void RestartCoordinator(int signal) {
    deployment_->coordinator_process().Signal(signal);
    SY_ASSERT_OK(deployment_->coordinator_process().Wait(kProgramMax));
    ExpectStepsGoOn();
    SY_ASSERT_OK(deployment_->RestartCoordinator());
    Do({"wait", "deployment", "local", "--for", "serving"});
    ExpectStepsGoOn();
  }
  // A process that leaves by itself, and another one under its id.
  void ReplaceWorker(std::size_t worker) {
    deployment_->worker_process(worker).Signal(SIGTERM);
    SY_ASSERT_OK_AND_ASSIGN(const int status,
                            deployment_->worker_process(worker).Wait(kProgramMax));
    EXPECT_EQ(status, 0);
    ExpectStepsGoOn();
    SY_ASSERT_OK(deployment_->RestartWorker(worker));
  }

  RepeatedLayers low_latency_{4, 10};
  RepeatedLayers normal_{512, 20};
  std::vector<std::vector<float>> undisturbed_;
  int first_epoch_ = 0;
};

TEST_P(AllVerbsTest, NoneDisturbsTwoSessionsAndEachSaysWhatIsSo) {
  // Kept out of new plans, and left where it serves.
  EXPECT_EQ(Wait({"cordon", "worker", "w2"})["worker"]["state"], "cordoned");
  const std::string other =
      WriteFile(absl::StrCat("name: other\ncheckpoint: ", testing::kShippedModel, "\n"));
  EXPECT_EQ(Wait({"apply", "-f", other})["applied"][0]["deployment"]["state"], "serving");
  EXPECT_THAT(WorkersOf("other"), ::testing::ElementsAre("w0", "w1"));
  EXPECT_THAT(WorkersOf("local"), ::testing::ElementsAre("w0", "w1", "w2"));
  EXPECT_EQ(Wait({"uncordon", "worker", "w2"})["worker"]["state"], "live");

  // Drained, replaced, taken back.
  const Json drained = Wait({"drain", "worker", "w2"})["worker"];
  EXPECT_EQ(drained["state"], "drained");
  EXPECT_THAT(drained.value("resident", Json::array()), ::testing::IsEmpty());
  EXPECT_THAT(WorkersOf("local"), ::testing::ElementsAre("w0", "w1"));
  ReplaceWorker(2);
  EXPECT_TRUE(WaitUntil([&] { return StateOf("w2") == "drained"; }));
  EXPECT_EQ(Wait({"uncordon", "w2"})["worker"]["state"], "live");
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 3));

  // Replaced without a drain.
  ReplaceWorker(1);
  Do({"wait", "worker/w1", "--for", "live"});
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 3));

  RestartCoordinator(SIGKILL);
  RestartCoordinator(SIGTERM);

  // Changed and back. The phases of the sessions stay as they are.
  const std::string changed =
      WriteFile(absl::StrCat("name: local\ncheckpoint: ", testing::kShippedModel,
                             "\nmin_workers: 2\nphases:\n  - phase: prefill\n  - phase: decode\n"));
  const Json applied = Wait({"apply", "-f", changed})["applied"][0]["deployment"];
  EXPECT_EQ(applied["serving_revision"], 2);
  const Json back = Wait({"rollback", "deployment", "local"})["deployment"];
  EXPECT_EQ(back["revision"], 3);
  EXPECT_EQ(back["serving_revision"], 3);
  EXPECT_EQ(back["state"], "serving");

  EXPECT_EQ(Wait({"delete", "deployment", "other"})["condition"], "deleted");
  EXPECT_EQ(Syctl({"get", "deployment", "other"}).code, 1);
  Wait({"apply", "-f",
        WriteFile(absl::StrCat("name: other\ncheckpoint: ", testing::kShippedModel, "\n"))});
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenOther());
  EXPECT_EQ(Wait({"delete", "deployment", "other", "--now"})["condition"], "deleted");
  EXPECT_EQ(Syctl({"get", "deployment", "other"}).code, 1);

  ExpectNoStepFailed();
  const int epochs = Epochs() - first_epoch_;
  std::printf("%d and %d steps over %d changes of the epoch\n", loads_[0]->steps(),
              loads_[1]->steps(), epochs);
  EXPECT_GE(epochs, 5);
  EXPECT_EQ(low_latency_.changes(), 0) << "the same bits on every placement";
  EXPECT_EQ(low_latency_.answers(), undisturbed_);
  EXPECT_LE(normal_.changes(), epochs) << "the same bits for every repetition on one placement";
}

// The wait outlives the coordinator that was asked.
TEST_P(AllVerbsTest, AWaitGoesOnWhileTheCoordinatorIsReplaced) {
  ProgramResult drained;
  std::thread drain([&] { drained = Syctl({"drain", "w2", "--wait", "-o", "table"}); });
  EXPECT_TRUE(WaitUntil([&] { return StateOf("w2") != "live"; }));
  RestartCoordinator(SIGKILL);
  drain.join();

  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_EQ(drained.out, "worker w2 is drained\n");
  EXPECT_EQ(StateOf("w2"), "drained");
  EXPECT_EQ(Wait({"uncordon", "w2"})["worker"]["state"], "live");
  ExpectStepsGoOn();
  ExpectNoStepFailed();
  EXPECT_EQ(low_latency_.answers(), undisturbed_);
}

INSTANTIATE_TEST_SUITE_P(Transport, AllVerbsTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace switchyard
