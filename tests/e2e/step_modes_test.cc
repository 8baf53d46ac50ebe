// Steps of every kind through one engine's sessions, on a whole deployment in one process: which
// mode their rows traveled in, as the workers counted them.
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/step_sessions.h"
#include "harness/in_process_deployment.h"
#include "tests/e2e/batch.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::kTopK;
using testing::ReferenceOf;
using testing::RunStep;

constexpr std::int32_t kWorkers = 2;
constexpr std::int32_t kLayer = 2;
constexpr Duration kTimeout = std::chrono::seconds(20);

constexpr StepKind kPrompt{.extend = true};
constexpr StepKind kToken{};
constexpr StepKind kDraftExtend{.extend = true, .draft_extend = true};
constexpr StepKind kCapture{.graph_capture = true};

// What workers must count in each mode: a row for each token and worker, or for each token and
// expert.
std::uint64_t RowsOf(const Batch& batch, const Plan& plan, DispatchMode mode) {
  if (mode == DispatchMode::kLowLatency) return batch.ids.size();
  std::set<std::pair<std::size_t, std::int32_t>> pairs;
  for (const LayerPlacement& layer : plan.layers) {
    if (layer.layer != LayerId{kLayer}) continue;
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      for (const PhysicalExpert& expert : layer.experts) {
        if (expert.expert != ExpertId{batch.ids[i]}) continue;
        pairs.insert({i / static_cast<std::size_t>(kTopK), expert.worker.value});
      }
    }
  }
  return pairs.size();
}

class StepModesTest : public ::testing::Test {
 protected:
  void Deploy(std::optional<ModeChoice> choice) {
    InProcessOptions options;
    options.checkpoint = testing::kShippedModel;
    options.workers = kWorkers;
    options.logger = &logger_;
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient());
    StepSessionsRequest order;
    order.choice = choice;
    SY_ASSERT_OK_AND_ASSIGN(sessions_, StepSessions::Open(*client_, order, kTimeout));
  }
  static std::uint64_t Rows(MoeSession& session) {
    const auto report = session.Report(kTimeout);
    EXPECT_TRUE(report.ok()) << report.status();
    std::uint64_t rows = 0;
    if (!report.ok()) return rows;
    for (const SessionCounters& worker : report->workers) {
      for (const AttachmentCounters& counters : worker.attachments) rows += counters.rows;
    }
    return rows;
  }
  // Runs a step of `tokens` tokens and holds its rows, as the workers of its session counted them,
  // against `mode`; its answer against the reference.
  void ExpectTravels(const StepKind& step, std::int32_t tokens, DispatchMode mode) {
    SY_ASSERT_OK_AND_ASSIGN(MoeSession* const session, sessions_->For(step));
    SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, session->Grant());
    Batch batch(tokens, 17);
    const std::uint64_t other =
        RowsOf(batch, grant.plan,
               mode == DispatchMode::kNormal ? DispatchMode::kLowLatency : DispatchMode::kNormal);
    ASSERT_NE(RowsOf(batch, grant.plan, mode), other) << "the batch tells no mode from the other";
    const std::uint64_t before = Rows(*session);

    SY_ASSERT_OK(RunStep(*session, batch, kLayer));

    EXPECT_EQ(Rows(*session) - before, RowsOf(batch, grant.plan, mode));
    EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), 1.5e-5);
  }

  Logger logger_{"test", LogLevel::kWarn};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> client_;          // goes before the deployment
  std::unique_ptr<StepSessions> sessions_;  // go before the client
};

// R39
TEST_F(StepModesTest, AutoSendsPromptsNormalAndDecodeStepsLowLatency) {
  Deploy(ModeChoice::kAuto);

  ExpectTravels(kPrompt, 40, DispatchMode::kNormal);
  ExpectTravels(kToken, 3, DispatchMode::kLowLatency);
  ExpectTravels(kPrompt, 40, DispatchMode::kNormal);
}

// R39
TEST_F(StepModesTest, AFixedChoiceIsTheModeOfEveryStep) {
  Deploy(ModeChoice::kLowLatency);
  ExpectTravels(kPrompt, 40, DispatchMode::kLowLatency);
  ExpectTravels(kToken, 3, DispatchMode::kLowLatency);

  sessions_.reset();
  client_.reset();
  Deploy(ModeChoice::kNormal);
  ExpectTravels(kPrompt, 40, DispatchMode::kNormal);
  ExpectTravels(kToken, 3, DispatchMode::kNormal);
  ExpectTravels(kDraftExtend, 3, DispatchMode::kNormal);
}

// R46
TEST_F(StepModesTest, AnExtendOfADraftTravelsLowLatencyThoughItIsAnExtend) {
  Deploy(ModeChoice::kAuto);

  ExpectTravels(kDraftExtend, 7, DispatchMode::kLowLatency);
  ExpectTravels(kCapture, 7, DispatchMode::kLowLatency);

  SY_ASSERT_OK_AND_ASSIGN(MoeSession* const prompts, sessions_->For(kPrompt));
  EXPECT_EQ(Rows(*prompts), 0U);
}

// R42
TEST_F(StepModesTest, AFixedNormalRefusesGraphsAndGoesOnServing) {
  Deploy(ModeChoice::kNormal);

  const absl::Status refused = sessions_->For(kCapture).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("mode normal cannot be captured"));
  ExpectTravels(kToken, 3, DispatchMode::kNormal);
}

TEST_F(StepModesTest, WithoutAChoiceThePlansModesHold) {
  Deploy(std::nullopt);

  ExpectTravels(kPrompt, 40, DispatchMode::kNormal);
  ExpectTravels(kToken, 3, DispatchMode::kLowLatency);
  SY_EXPECT_OK(sessions_->For(kCapture));
}

}  // namespace
}  // namespace switchyard
