// The provider over a real deployment in this process, beside the reference.
#include "tools/deployment/deployment_moe.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/format/calc_diff.h"
#include "examples/qwen3_moe/decoder_weights.h"
#include "harness/in_process_deployment.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kHidden = 256;
constexpr std::size_t kTopK = 4;

// A batch of the shipped model's shape; token t names experts t, t + 3, t + 6 and t + 9.
struct Batch {
  Batch(std::size_t token_count, std::uint64_t seed) : tokens(token_count) {
    SeededRng rng(seed);
    x = testing::GaussianBf16(tokens * kHidden, 1.0, rng);
    for (std::size_t i = 0; i < tokens * kTopK; ++i) {
      ids.push_back(static_cast<std::int32_t>((i / kTopK + 3 * (i % kTopK)) % 16));
      weights.push_back(static_cast<float>(rng.Uniform()));
    }
    y.assign(tokens * kHidden, std::numeric_limits<float>::quiet_NaN());
  }
  MoeCall Call(int layer) {
    return {.layer = LayerId{layer},
            .tokens = tokens,
            .top_k = kTopK,
            .x = x,
            .ids = ids,
            .weights = weights,
            .y = y};
  }
  std::size_t tokens;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

class DeploymentMoeTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void Start(std::optional<DispatchMode> planned) {
    InProcessOptions options;
    options.mode = planned;
    options.checkpoint = SY_SHIPPED_MODEL;
    options.workers = 2;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
  }
  absl::StatusOr<std::unique_ptr<MoeProvider>> Open(const DeploymentMoeOptions& options) {
    absl::StatusOr<std::unique_ptr<Client>> client = deployment_->MakeClient();
    if (!client.ok()) return client.status();
    return OpenDeploymentMoe(*std::move(client), options);
  }

  Logger logger_{"test", LogLevel::kError};
  std::unique_ptr<InProcessDeployment> deployment_;
};

TEST_F(DeploymentMoeTest, BothPathsGiveWhatTheReferenceGives) {
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(SY_SHIPPED_MODEL));
  SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));
  SY_ASSERT_OK_AND_ASSIGN(const auto reference, OpenMoe(*checkpoint, dims, {.moe = "reference"}));
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open({}));
  Batch prompt(7, 1);
  Batch token(1, 2);
  Batch wanted_prompt(7, 1);
  Batch wanted_token(1, 2);

  SY_ASSERT_OK(moe->prefill().run(prompt.Call(2)));
  SY_ASSERT_OK(moe->decode().run(token.Call(0)));
  SY_ASSERT_OK(reference->prefill().run(wanted_prompt.Call(2)));
  SY_ASSERT_OK(reference->decode().run(wanted_token.Call(0)));

  DiffSums diff;
  diff.Add(prompt.y, wanted_prompt.y);
  EXPECT_LE(diff.Diff(), 1.5e-5);
  diff = {};
  diff.Add(token.y, wanted_token.y);
  EXPECT_LE(diff.Diff(), 1.5e-5);
  EXPECT_GE(moe->prefill().max_tokens, 4096U);
  EXPECT_EQ(moe->decode().max_tokens, 512U);
  EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, decode, cpu -> cpu: low_latency"));
}

TEST_F(DeploymentMoeTest, WorkersCountWhatRoutingPredicts) {
  DeploymentMoeOptions options;
  options.expected_path = "inproc";
  options.description = "two workers";
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open(options));
  Batch prompt(5, 3);
  SY_ASSERT_OK(moe->prefill().run(prompt.Call(1)));

  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());

  EXPECT_EQ(report.how, "two workers");
  ASSERT_EQ(report.workers.size(), 2U);
  std::uint64_t hits = 0;
  for (const WorkerReport& worker : report.workers) {
    EXPECT_THAT(worker.differences, IsEmpty()) << worker.worker;
    EXPECT_EQ(worker.path, "inproc");
    EXPECT_EQ(worker.counted.rows, worker.predicted.rows);
    EXPECT_GT(worker.counted.rows, 0U);
    hits += worker.counted.expert_hits;
  }
  EXPECT_EQ(hits, 5 * kTopK);
}

TEST_F(DeploymentMoeTest, SaysWhenRowsTraveledAnotherWayThanAsked) {
  DeploymentMoeOptions options;
  options.expected_path = "mapped";
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open(options));
  Batch prompt(5, 3);
  SY_ASSERT_OK(moe->prefill().run(prompt.Call(1)));

  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());

  EXPECT_THAT(report.workers.at(0).differences,
              ElementsAre("rows traveled by inproc, expected mapped"));
}

TEST_F(DeploymentMoeTest, AModeThatIsAskedForHoldsInBothPhases) {
  DeploymentMoeOptions options;
  options.mode = ModeChoice::kNormal;
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open(options));

  EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, decode, cpu -> cpu: normal"));
}

// R39: whatever the deployment plans, here low_latency for all.
TEST_F(DeploymentMoeTest, AutoSendsPromptsNormalAndTokensLowLatency) {
  deployment_.reset();
  Start(DispatchMode::kLowLatency);
  DeploymentMoeOptions options;
  options.mode = ModeChoice::kAuto;
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open(options));
  Batch prompt(5, 3);
  Batch token(1, 4);

  SY_ASSERT_OK(moe->prefill().run(prompt.Call(1)));
  SY_ASSERT_OK(moe->decode().run(token.Call(1)));

  EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, prefill, cpu -> cpu: normal"));
  EXPECT_THAT(moe->Describe(), HasSubstr("layers 0-3, decode, cpu -> cpu: low_latency"));
  EXPECT_GE(moe->prefill().max_tokens, 4096U);
  EXPECT_EQ(moe->decode().max_tokens, 512U);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, moe->Report());
  for (const WorkerReport& worker : report.workers) EXPECT_THAT(worker.differences, IsEmpty());
  // What eval prints of prompts: how they traveled, not what the deployment plans.
  EXPECT_EQ(report.prefill.at(0).mode, DispatchMode::kNormal);
  EXPECT_EQ(report.prefill.at(0).trail.at(0),
            "mode normal: requested by the session; the plan has low_latency");
}

TEST_F(DeploymentMoeTest, CannotTellCountsAcrossAChangeOfThePlan) {
  SY_ASSERT_OK_AND_ASSIGN(const auto moe, Open({}));
  SY_ASSERT_OK(moe->Report());

  SY_ASSERT_OK(deployment_->AddWorker());

  const SteadyClock clock;
  const TimePoint end = clock.Now() + std::chrono::seconds(30);
  absl::StatusOr<ExpertsReport> report = ExpertsReport{};
  while (report.ok() && report->not_compared.empty() && clock.Now() < end) report = moe->Report();
  SY_ASSERT_OK(report);
  EXPECT_THAT(report->not_compared, HasSubstr("the plan changed during the run, from epoch 1 to "));
  EXPECT_THAT(report->workers, IsEmpty());
}

// With 0 the error of the first attempt comes back; otherwise the step waits for the new plan.
TEST_F(DeploymentMoeTest, RepeatsAStepForAsLongAsItIsTold) {
  DeploymentMoeOptions strict;
  strict.retry_for = Duration::zero();
  SY_ASSERT_OK_AND_ASSIGN(const auto once, Open(strict));
  SY_ASSERT_OK_AND_ASSIGN(const auto patient, Open({}));
  Batch batch(5, 3);
  SY_ASSERT_OK(once->decode().run(batch.Call(1)));
  SY_ASSERT_OK(patient->decode().run(batch.Call(1)));

  deployment_->KillWorker(1);

  EXPECT_THAT(once->decode().run(batch.Call(1)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  SY_EXPECT_OK(patient->decode().run(batch.Call(1)));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, patient->Report());
  EXPECT_FALSE(report.not_compared.empty());
}

TEST_F(DeploymentMoeTest, TakesTheDeploymentThatIsNamedAndSaysWhichThereIsNot) {
  DeploymentMoeOptions options;
  options.deployment = "local";
  SY_ASSERT_OK(Open(options));

  options.deployment = "no-such-deployment";

  const absl::Status refused = Open(options).status();
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no-such-deployment"));
}

TEST_F(DeploymentMoeTest, TakesTheModelThatIsNamedAndSaysWhichThereIsNot) {
  DeploymentMoeOptions options;
  options.served_model = "sqlite-moe-7m";  // the last component of the checkpoint's path
  SY_ASSERT_OK(Open(options));

  options.served_model = "no-such-model";

  const absl::Status refused = Open(options).status();
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no-such-model"));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
