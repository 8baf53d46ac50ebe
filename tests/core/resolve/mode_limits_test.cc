#include "core/resolve/mode_limits.h"

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/core/resolve/resolve_testing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::Case;
using testing::Everything;
using testing::FailsWith;

DecisionTrace Within(Case& a_case) {
  a_case.request.workers = a_case.workers;
  return TraceWithinLimits(a_case.request, a_case.workers);
}

TEST(ModeLimitsTest, LowLatencyIsBoundedInTopKAndTokensAndNormalIsNot) {
  const std::vector<CapabilitySet> npus(2, Everything("ascend_a2"));
  const MoeShape shape{.hidden = 7168, .intermediate = 2048, .experts = 256, .top_k = 17};

  EXPECT_THAT(CheckModeLimits(DispatchMode::kLowLatency, shape, 128, npus),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  SY_EXPECT_OK(CheckModeLimits(DispatchMode::kNormal, shape, 9999, npus));
  MoeShape uneven = shape;
  uneven.experts = 255;
  EXPECT_THAT(CheckModeLimits(DispatchMode::kNormal, uneven, 128, npus),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(ModeLimitsTest, ATraceBeyondThemIsRefusedAndKeepsItsSteps) {
  Case a_case("ascend_a2");
  a_case.Scheme(QuantScheme::kW8A8Int8).Ask(DispatchDtype::kFp8);
  EXPECT_TRUE(Within(a_case).outcome.has_value());

  a_case.request.tokens = 513;
  const DecisionTrace trace = Within(a_case);

  EXPECT_FALSE(trace.outcome.has_value());
  EXPECT_THAT(trace.refusal, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(trace.refusal.message().substr(0, 14), "phase decode: ");
  EXPECT_EQ(trace.adjustments.size(), 1U);
  EXPECT_TRUE(trace.decision.has_value());
}

TEST(ModeLimitsTest, ARefusalOfTheResolverStaysWhatItIs) {
  Case a_case("cpu");
  a_case.Scheme(QuantScheme::kAwqInt4).Ask(DispatchDtype::kFp8);
  a_case.request.shape.top_k = 99;

  EXPECT_THAT(Within(a_case).refusal,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
