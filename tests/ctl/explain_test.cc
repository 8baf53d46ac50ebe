#include "ctl/explain.h"

#include "gtest/gtest.h"

#include "tests/ctl/messages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
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
