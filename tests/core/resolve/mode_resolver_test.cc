#include "core/resolve/mode_resolver.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

constexpr auto kNormal = DispatchMode::kNormal;
constexpr auto kLowLatency = DispatchMode::kLowLatency;

// R39: three choices by two kinds of step.
TEST(ModeResolverTest, ResolvesAStepByChoiceAndExtend) {
  EXPECT_EQ(ModeOfStep(ModeChoice::kNormal, {.extend = false}), kNormal);
  EXPECT_EQ(ModeOfStep(ModeChoice::kNormal, {.extend = true}), kNormal);
  EXPECT_EQ(ModeOfStep(ModeChoice::kLowLatency, {.extend = false}), kLowLatency);
  EXPECT_EQ(ModeOfStep(ModeChoice::kLowLatency, {.extend = true}), kLowLatency);
  EXPECT_EQ(ModeOfStep(ModeChoice::kAuto, {.extend = false}), kLowLatency);
  EXPECT_EQ(ModeOfStep(ModeChoice::kAuto, {.extend = true}), kNormal);
}

// R46: an extend of a draft, and a step that is captured into a graph, count as decode.
TEST(ModeResolverTest, DraftExtendsAndCapturedStepsUseLowLatency) {
  EXPECT_EQ(ModeOfStep(ModeChoice::kAuto, {.extend = true, .draft_extend = true}), kLowLatency);
  EXPECT_EQ(ModeOfStep(ModeChoice::kAuto, {.extend = true, .graph_capture = true}), kLowLatency);
  EXPECT_EQ(ModeOfStep(ModeChoice::kNormal, {.extend = true, .draft_extend = true}), kNormal)
      << "a fixed choice is its own answer";
}

// Only a step of many tokens is one of prefill.
TEST(ModeResolverTest, AStepIsOfPrefillWhereAutoIsNormal) {
  for (const bool extend : {false, true}) {
    for (const bool draft : {false, true}) {
      for (const bool capture : {false, true}) {
        const StepKind step{.extend = extend, .draft_extend = draft, .graph_capture = capture};
        EXPECT_EQ(PhaseOfStep(step),
                  extend && !draft && !capture ? Phase::kPrefill : Phase::kDecode);
        EXPECT_EQ(PhaseOfStep(step) == Phase::kPrefill,
                  ModeOfStep(ModeChoice::kAuto, step) == kNormal);
      }
    }
  }
}

// R41: the defaults of the phases, and that a deployment overrides them.
TEST(ModeResolverTest, PhasesHaveDefaultsThatADeploymentOverrides) {
  EXPECT_EQ(DefaultModeChoice(Phase::kPrefill), ModeChoice::kNormal);
  EXPECT_EQ(DefaultModeChoice(Phase::kDecode), ModeChoice::kLowLatency);
  EXPECT_EQ(DefaultModeChoice(Phase::kMixed), ModeChoice::kAuto);

  EXPECT_EQ(ModeOfConfig(Phase::kPrefill, {}).mode, kNormal);
  EXPECT_EQ(ModeOfConfig(Phase::kDecode, {}).mode, kLowLatency);
  EXPECT_EQ(ModeOfConfig(Phase::kMixed, {}).mode, kNormal);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    for (const DispatchMode mode : {kNormal, kLowLatency}) {
      const ModeDecision asked = ModeOfConfig(phase, mode);
      EXPECT_EQ(asked.mode, mode);
      EXPECT_THAT(asked.why, HasSubstr("the deployment asks for it in phase"));
    }
  }
}

// R42
TEST(ModeResolverTest, NormalModeHasNoGraphs) {
  EXPECT_FALSE(SupportsGraphs(kNormal));
  EXPECT_TRUE(SupportsGraphs(kLowLatency));
  EXPECT_THAT(std::string(WhyNoGraphs(kNormal)), HasSubstr("mode normal cannot be captured"));
  EXPECT_EQ(WhyNoGraphs(kLowLatency), "");
}

TEST(ModeResolverTest, ChoicesHaveNames) {
  EXPECT_EQ(ModeChoiceFromName("normal"), ModeChoice::kNormal);
  EXPECT_EQ(ModeChoiceFromName("low_latency"), ModeChoice::kLowLatency);
  EXPECT_EQ(ModeChoiceFromName("auto"), ModeChoice::kAuto);
  EXPECT_EQ(ModeChoiceFromName("fast"), std::nullopt);
}

}  // namespace
}  // namespace switchyard
