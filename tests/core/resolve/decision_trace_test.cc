#include "core/resolve/decision_trace.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/core/resolve/resolve_testing.h"

namespace switchyard {
namespace {

using testing::Case;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(TESTDATA, "/", name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A deployment requests FP8, and its workers are NPUs.
TEST(ExplainTest, NpuAndFp8) {
  Case a_case("ascend_a2", 8);
  a_case.Scheme(QuantScheme::kW8A8Int8).Ask(DispatchDtype::kFp8);

  EXPECT_EQ(ExplainText(a_case.Trace()), Golden("explain_npu_fp8.txt"));
}

// An NVFP4 checkpoint, calibrated, is placed on NPUs.
TEST(ExplainTest, Nvfp4OnNpu) {
  Case a_case("ascend_a3", 8);
  a_case.Scheme(QuantScheme::kNvfp4).Scale(2.5F);

  EXPECT_EQ(ExplainText(a_case.Trace()), Golden("explain_nvfp4_on_npu.txt"));
}

// A W4A4 checkpoint in prefill.
TEST(ExplainTest, W4A4) {
  Case a_case("ascend_a3", 8);
  a_case.Scheme(QuantScheme::kW4A4Int4).In(Phase::kPrefill);

  EXPECT_EQ(ExplainText(a_case.Trace()), Golden("explain_w4a4.txt"));
}

// A deployment requests FP8, and this layer is its BF16 draft.
TEST(ExplainTest, DraftLayerUnderAnExplicitRequest) {
  Case a_case("cuda_sm90", 8);
  a_case.Ask(DispatchDtype::kFp8).Draft(RunnerBackend::kDeepGemm);

  EXPECT_EQ(ExplainText(a_case.Trace()), Golden("explain_draft_layer.txt"));
}

// Two models in one pool, one wants FP8 and the other BF16: each gets its own.
TEST(ExplainTest, TwoModelsWithOppositeOverrides) {
  Case one("cuda_sm90", 8);
  one.Scheme(QuantScheme::kFp8Block).Ask(DispatchDtype::kFp8, "deployment chat");
  Case other("cuda_sm90", 8);
  other.Scheme(QuantScheme::kFp8Block).Ask(DispatchDtype::kBf16, "deployment code");
  other.request.deployment = "code";
  other.request.model = "n";

  EXPECT_EQ(absl::StrCat(ExplainText(one.Trace()), "\n---\n\n", ExplainText(other.Trace())),
            Golden("explain_two_models.txt"));
}

TEST(ExplainTest, SaysWhatIsNotKnownAndWhatIsLeftOut) {
  EXPECT_THAT(ExplainText(Case("cpu").Trace()), HasSubstr("experts: scheme unknown, runner auto"));
  Case excluded("cpu");
  excluded.request.layer.excluded = true;
  EXPECT_THAT(ExplainText(excluded.Trace()), HasSubstr("layer 3 (left out of the quantization)"));
}

// R22: the lines of a plan name the rule, what was adjusted from what and why, bytes and flags.
TEST(TrailTest, HasALineForEachStepThatMattered) {
  Case a_case("ascend_a2", 8);
  a_case.Scheme(QuantScheme::kW8A8Int8).Ask(DispatchDtype::kFp8);

  EXPECT_THAT(
      TrailLines(a_case.Trace()),
      ElementsAre(StartsWith("mode low_latency: decode steps"),
                  "wire dtype fp8: rule 0 (explicit): deployment chat asks for it",
                  "wire dtype int8, not fp8: hardware: Ascend A2 NPU does not support fp8 rows; "
                  "switching to int8",
                  "combine dtype bf16: results travel in the dtype of the activations; a row is "
                  "7172 bytes out and 14336 back (use_fp8=1 use_nvfp4=0)"));
}

TEST(TrailTest, NamesDiffer) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(AdjustmentId::kCapability); ++i) {
    EXPECT_TRUE(names.insert(std::string(AdjustmentName(static_cast<AdjustmentId>(i)))).second);
  }
  for (int i = 0; i <= static_cast<int>(WarningId::kDeprecatedOption); ++i) {
    EXPECT_TRUE(names.insert(std::string(WarningName(static_cast<WarningId>(i)))).second);
  }
}

}  // namespace
}  // namespace switchyard
