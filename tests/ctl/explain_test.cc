#include "ctl/explain.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/resolve/what_if.h"
#include "services/grpc_status.h"
#include "tests/ctl/messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::HypotheticalMessage;
using switchyard::testing::LayerMessage;

TEST(ExplainTest, GivesTheReasonsOfEachPhase) {
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(LayerMessage(4)));

  EXPECT_EQ(ExplainLayerText(layer, 0),
            "layer 4, epoch 3\n"
            "\n"
            "prefill, cpu -> cpu: normal, bf16 out and bf16 back\n"
            "  - mode normal: prefill steps may have many tokens\n"
            "  - wire dtype bf16: unquantised\n"
            "\n"
            "decode, cpu -> cpu: low_latency, bf16 out and bf16 back\n"
            "  - mode low_latency: decode steps have few tokens\n"
            "\n"
            "WORKER  DEVICE  KERNEL    COPIES  EXPERTS\n"
            "w0      cpu     amx_bf16  2       0-1\n"
            "w1      cpu     scalar    3       0 2-3\n");
}

TEST(ExplainTest, WrapsReasonsAtTheTerminalsWidth) {
  SY_ASSERT_OK_AND_ASSIGN(const Plan layer, FromProto(LayerMessage(0)));

  EXPECT_NE(ExplainLayerText(layer, 40).find("  - mode normal: prefill steps may have\n"
                                             "    many tokens\n"),
            std::string::npos);
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
      HypothesesText(hypotheses, "cpu -> npu", 0),
      absl::StrCat("the plan has no edge cpu -> npu; this is what would be decided ",
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
