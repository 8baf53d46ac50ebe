#include "ctl/explain.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/resolve/what_if.h"
#include "services/grpc/grpc_status.h"
#include "tests/ctl/messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::HypotheticalMessage;
using switchyard::testing::LayerMessage;
using switchyard::testing::TraceMessage;

TEST(ExplainTest, GivesTheReasonsOfEachPhase) {
  const v1::ExplainLayerResponse message = LayerMessage(4);
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(message));

  EXPECT_EQ(ExplainLayerText(message, layer, 0),
            "layer 4, epoch 3\n"
            "\n"
            "prefill, cpu -> cpu: normal, bf16 out and bf16 back\n"
            "  - mode normal: prefill steps may have many tokens\n"
            "  - wire dtype bf16: unquantized\n"
            "\n"
            "decode, cpu -> cpu: low_latency, bf16 out and bf16 back\n"
            "  - mode low_latency: decode steps have few tokens\n"
            "\n"
            "WORKER  DEVICE  KERNEL    COPIES  EXPERTS\n"
            "w0      cpu     amx_bf16  2       0-1\n"
            "w1      cpu     scalar    3       0 2-3\n");
}

TEST(ExplainTest, WrapsReasonsAtTheTerminalsWidth) {
  const v1::ExplainLayerResponse message = LayerMessage(0);
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(message));

  EXPECT_NE(ExplainLayerText(message, layer, 40)
                .find("  - mode normal: prefill steps may have\n"
                      "    many tokens\n"),
            std::string::npos);
}

// The reasons are what the plan has of it, the page is all of it.
TEST(ExplainTest, ShowsThePageOfTheDecisionThatServes) {
  v1::ExplainLayerResponse message = LayerMessage(0);
  *message.add_traces() = TraceMessage(0, "page of prefill\n\n  0  explicit\n");
  *message.add_traces() = TraceMessage(1, "page of decode\n");
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(message));

  EXPECT_EQ(ExplainLayerText(message, layer, 0),
            "layer 0, epoch 3\n"
            "\n"
            "prefill, cpu -> cpu: normal, bf16 out and bf16 back\n"
            "  - mode normal: prefill steps may have many tokens\n"
            "  - wire dtype bf16: unquantized\n"
            "\n"
            "  page of prefill\n"
            "\n"
            "    0  explicit\n"
            "\n"
            "decode, cpu -> cpu: low_latency, bf16 out and bf16 back\n"
            "  - mode low_latency: decode steps have few tokens\n"
            "\n"
            "  page of decode\n"
            "\n"
            "WORKER  DEVICE  KERNEL    COPIES  EXPERTS\n"
            "w0      cpu     amx_bf16  2       0-1\n"
            "w1      cpu     scalar    2       2-3\n");
}

// The plan serves on while the deployment was applied with something that is refused.
TEST(ExplainTest, ADecisionThatDoesNotServeIsShownApart) {
  v1::ExplainLayerResponse message = LayerMessage(0);
  message.set_activity("refused");
  v1::DispatchTrace& refused = *message.add_traces();
  refused = TraceMessage(0, "page of the refusal\n");
  refused.clear_outcome();
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(message));

  const std::string text = ExplainLayerText(message, layer, 0);

  EXPECT_NE(text.find("  - wire dtype bf16: unquantized\n"), std::string::npos);
  EXPECT_NE(
      text.find("\ndecisions for the deployment as applied now, which do not serve yet: refused\n"
                "\n  page of the refusal\n"),
      std::string::npos)
      << text;
}

TEST(ExplainTest, HypothesesShowThePageOfTheirFirstEdge) {
  v1::ExplainLayerResponse message;
  for (const char* worker : {"ascend_a2", "ascend_a3"}) {
    *message.add_hypothetical() = HypotheticalMessage(worker);
    message.mutable_hypothetical()->rbegin()->mutable_trace()->set_page(
        absl::StrCat("page of ", worker, "\n"));
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto hypotheses, HypothesesFromProto(message));

  const std::string text = HypothesesText(hypotheses, "no plan", 0);

  EXPECT_NE(text.find("few tokens\n\n  page of ascend_a2\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("page of ascend_a3"), std::string::npos);
  EXPECT_EQ(WithoutPages(message).hypothetical(0).trace().page(), "");
}

// FP8 rows are of two formats, which do not understand each other.
TEST(ExplainTest, NamesTheWireFormatNotTheDtypeAlone) {
  const v1::ExplainLayerResponse message = LayerMessage(0);
  SY_ASSERT_OK_AND_ASSIGN(Plan layer, FromProto(message));
  layer.configs[0].wire_dtype = DispatchDtype::kFp8;
  layer.configs[0].wire_scale = ScaleKind::kUe8m0;

  EXPECT_NE(ExplainLayerText(message, layer, 0).find("normal, fp8_ue8m0 out and bf16 back"),
            std::string::npos);
  EXPECT_NE(DescribeLayerText(layer).find("fp8_ue8m0"), std::string::npos);
}

TEST(ExplainTest, EdgesThatThePlanDoesNotHaveAreMarkedAndGrouped) {
  v1::ExplainLayerResponse message;
  for (const char* worker : {"ascend_a2", "ascend_a3", "ascend_a5"}) {
    v1::HypotheticalDispatch& one = *message.add_hypothetical();
    one = HypotheticalMessage(worker);
    if (std::string(worker) != "ascend_a5") continue;
    one.clear_config();
    *one.mutable_refusal() = StatusToProto(
        MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported, "it has no nvfp4 rows"));
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto hypotheses, HypothesesFromProto(message));

  EXPECT_EQ(
      HypothesesText(hypotheses, "the plan has no edge cpu -> npu", 0),
      absl::StrCat("the plan has no edge cpu -> npu; this would be the decision ",
                   kFullCapabilitiesText,
                   "\n"
                   "\n"
                   "decode, cpu -> ascend_a2, cpu -> ascend_a3: would be low_latency, bf16 out "
                   "and bf16 back\n"
                   "  - mode low_latency: decode steps have few tokens\n"
                   "\n"
                   "decode, cpu -> ascend_a5: would be refused\n"
                   "  - it has no nvfp4 rows\n"));
}

TEST(ExplainTest, DescribesWithoutReasons) {
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(LayerMessage(0)));

  EXPECT_EQ(DescribeLayerText(layer),
            "layer 0, epoch 3\n"
            "\n"
            "WORKER  DEVICE  KERNEL    COPIES  EXPERTS\n"
            "w0      cpu     amx_bf16  2       0-1\n"
            "w1      cpu     scalar    2       2-3\n"
            "\n"
            "PHASE    EDGE        MODE         WIRE  COMBINE  SCHEME  MAX TOKENS\n"
            "prefill  cpu -> cpu  normal       bf16  bf16     none    -\n"
            "decode   cpu -> cpu  low_latency  bf16  bf16     none    512\n");
}

TEST(ExplainTest, RefusesAnAnswerWithoutPlacement) {
  v1::ExplainLayerResponse message = LayerMessage(0);
  message.clear_placement();

  EXPECT_THAT(FromProto(message),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard::ctl
