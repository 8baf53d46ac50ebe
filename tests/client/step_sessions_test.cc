#include "client/step_sessions.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "tests/testing/scripted_gateway.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;

constexpr auto kNormal = DispatchMode::kNormal;
constexpr auto kLowLatency = DispatchMode::kLowLatency;
constexpr Duration kTimeout = std::chrono::seconds(5);

constexpr StepKind kPrompt{.extend = true};
constexpr StepKind kToken{};
constexpr StepKind kDraftExtend{.extend = true, .draft_extend = true};
constexpr StepKind kCapture{.graph_capture = true};
constexpr StepKind kCapturedExtend{.extend = true, .graph_capture = true};

// Sessions of a client of a scripted gateway, which grants what it is asked for.
class StepSessionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClientParts parts;
    parts.sessions = std::make_unique<testing::ScriptedChannel>();
    auto gateway = std::make_unique<testing::ScriptedGateway>();
    gateway_ = gateway.get();
    parts.steps = std::move(gateway);
    SY_ASSERT_OK_AND_ASSIGN(parts.device, CpuBackend::Create({.kernel_family = "portable_fp32"}));
    ClientOptions options;
    options.gateway = "scripted";
    client_ = Client::Over(options, std::move(parts));
  }
  absl::Status Open(const StepSessionsRequest& order) {
    SY_ASSIGN_OR_RETURN(sessions_, StepSessions::Open(*client_, order, kTimeout));
    return absl::OkStatus();
  }
  absl::Status Open(std::optional<ModeChoice> choice, Phase phase = Phase::kMixed) {
    StepSessionsRequest order;
    order.common.phase = phase;
    order.choice = choice;
    return Open(order);
  }
  // "phase, mode" of the session for `step`, as granted; "refused" when there is none.
  std::string Way(const StepKind& step) {
    const auto session = sessions_->For(step);
    if (!session.ok()) return "refused";
    const auto grant = (*session)->Grant();
    if (!grant.ok()) return "no grant";
    return std::string(PhaseName(grant->request.phase)) + ", " +
           std::string(DispatchModeName(*grant->request.mode));
  }
  std::vector<std::string> Ways() {
    return {Way(kPrompt), Way(kToken), Way(kDraftExtend), Way(kCapture), Way(kCapturedExtend)};
  }

  testing::ScriptedGateway* gateway_ = nullptr;
  std::unique_ptr<Client> client_;
  std::unique_ptr<StepSessions> sessions_;  // goes before the client
};

// R39, R46
TEST_F(StepSessionsTest, AutoSendsPromptsNormalAndAllElseLowLatency) {
  SY_ASSERT_OK(Open(ModeChoice::kAuto));

  EXPECT_EQ(gateway_->opens, 2);
  EXPECT_THAT(Ways(), ElementsAre("prefill, normal", "decode, low_latency", "decode, low_latency",
                                  "decode, low_latency", "decode, low_latency"));
}

// R39, R42
TEST_F(StepSessionsTest, AFixedChoiceHoldsForEveryStepAndNormalCapturesNone) {
  SY_ASSERT_OK(Open(ModeChoice::kNormal));
  EXPECT_THAT(Ways(), ElementsAre("prefill, normal", "decode, normal", "decode, normal", "refused",
                                  "refused"));

  SY_ASSERT_OK(Open(ModeChoice::kLowLatency));
  EXPECT_THAT(Ways(),
              ElementsAre("prefill, low_latency", "decode, low_latency", "decode, low_latency",
                          "decode, low_latency", "decode, low_latency"));
}

// R42
TEST_F(StepSessionsTest, ACaptureInModeNormalIsRefusedWithTheReasonAndTheRemedy) {
  SY_ASSERT_OK(Open(ModeChoice::kNormal));

  const absl::Status refused = sessions_->For(kCapture).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("mode normal cannot be captured"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("choose low_latency or auto"));
  EXPECT_EQ(MetadataOf(refused).at("mode"), "normal");
}

TEST_F(StepSessionsTest, WithoutAChoiceThePlanSaysTheModeOfEachPhase) {
  for (const DispatchMode planned : {kNormal, kLowLatency}) {
    gateway_->planned = planned;
    gateway_->requests.clear();

    SY_ASSERT_OK(Open(std::nullopt));

    ASSERT_EQ(gateway_->requests.size(), 2U);
    for (const OpenSessionRequest& order : gateway_->requests) EXPECT_FALSE(order.mode.has_value());
    const std::string mode(DispatchModeName(planned));
    EXPECT_EQ(Way(kPrompt), "prefill, " + mode);
    EXPECT_EQ(Way(kToken), "decode, " + mode);
    EXPECT_EQ(Way(kCapture), planned == kNormal ? "refused" : "decode, low_latency");
  }
}

TEST_F(StepSessionsTest, OpensNoSessionForAPhaseThatTheEngineDoesNotDo) {
  SY_ASSERT_OK(Open(ModeChoice::kAuto, Phase::kDecode));

  ASSERT_EQ(gateway_->requests.size(), 1U);
  EXPECT_EQ(gateway_->requests[0].phase, Phase::kDecode);
  EXPECT_EQ(gateway_->requests[0].mode, kLowLatency);
  const absl::Status refused = sessions_->For(kPrompt).status();
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(refused).at("phase"), "prefill");

  SY_ASSERT_OK(Open(ModeChoice::kNormal, Phase::kPrefill));

  ASSERT_EQ(gateway_->requests.size(), 2U);
  EXPECT_EQ(gateway_->requests[1].phase, Phase::kPrefill);
  EXPECT_EQ(Way(kPrompt), "prefill, normal");
  EXPECT_EQ(Way(kDraftExtend), "refused");
}

TEST_F(StepSessionsTest, HandsOnWhatSessionsHaveInCommonAndEachPhasesLargestBatch) {
  StepSessionsRequest order;
  order.common.model = "m";
  order.common.strict = true;
  order.common.y_dtype = OutputDtype::kBf16;
  order.choice = ModeChoice::kAuto;
  order.prefill_max_tokens = 4000;
  order.decode_max_tokens = 64;

  SY_ASSERT_OK(Open(order));

  ASSERT_EQ(gateway_->requests.size(), 2U);
  EXPECT_EQ(gateway_->requests[0].max_tokens, 4000);
  EXPECT_EQ(gateway_->requests[1].max_tokens, 64);
  for (const OpenSessionRequest& one : gateway_->requests) {
    EXPECT_EQ(one.model, "m");
    EXPECT_TRUE(one.strict);
    EXPECT_EQ(one.y_dtype, OutputDtype::kBf16);
  }
}

TEST_F(StepSessionsTest, RefusesAModeOrLargestBatchForBothBeforeAnythingIsOpened) {
  StepSessionsRequest mode;
  mode.common.mode = kNormal;
  StepSessionsRequest tokens;
  tokens.common.max_tokens = 8;

  const absl::Status bad_mode = Open(mode);
  const absl::Status bad_tokens = Open(tokens);

  EXPECT_THAT(bad_mode, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(bad_mode).at("field"), "mode");
  EXPECT_THAT(bad_tokens, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_EQ(MetadataOf(bad_tokens).at("field"), "max_tokens");
  EXPECT_EQ(gateway_->opens, 0);
}

TEST_F(StepSessionsTest, IsRefusedWithTheErrorOfTheSessionThatCannotBeOpened) {
  gateway_->refuse = MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such model");

  EXPECT_THAT(Open(ModeChoice::kAuto),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));

  EXPECT_EQ(gateway_->opens, 1);
}

}  // namespace
}  // namespace switchyard
