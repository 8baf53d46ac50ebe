#include "ctl/errors.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"

namespace switchyard::ctl {
namespace {

absl::Status NotThere() {
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer, "layer 9 is no MoE layer",
                   {{"layer", "9"}, {"deployment", ""}, {"model", "toy"}});
}

TEST(ErrorsTest, SayCodeReasonIdsAndTheNextStep) {
  EXPECT_EQ(ErrorText(NotThere()),
            "syctl: layer 9 is no MoE layer\n"
            "  code    NOT_FOUND\n"
            "  reason  UNKNOWN_LAYER\n"
            "  layer   9\n"
            "  model   toy\n"
            "next: 'syctl get layers' lists the MoE layers\n");
}

TEST(ErrorsTest, SayNothingMoreWhenTheTextSaysItAll) {
  const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions, "4096 are open");

  EXPECT_EQ(NextStep(status), "");
  EXPECT_EQ(ErrorText(status),
            "syctl: 4096 are open\n  code    RESOURCE_EXHAUSTED\n  reason  TOO_MANY_SESSIONS\n");
  EXPECT_FALSE(ErrorObject(status)["error"].contains("next"));
}

TEST(ErrorsTest, AFileThatIsRightIsNotToBeCorrected) {
  EXPECT_EQ(NextStep(MakeError(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
                               "the limit of 64 deployments is reached; delete one")),
            "");
}

TEST(ErrorsTest, AreAnObjectForPrograms) {
  const Json json = ErrorObject(NotThere());

  EXPECT_EQ(json["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json["error"]["reason"], "UNKNOWN_LAYER");
  EXPECT_EQ(json["error"]["metadata"]["layer"], "9");
  EXPECT_EQ(json["error"]["next"], "'syctl get layers' lists the MoE layers");
}

TEST(ErrorsTest, ReasonsThatAnOperatorMeetsHaveANextStep) {
  for (const Reason reason : {Reason::kCoordinatorLost, Reason::kNotReady, Reason::kUnknownModel,
                              Reason::kUnknownLayer, Reason::kBadConfig, Reason::kUnsupported}) {
    EXPECT_NE(NextStep(MakeError(absl::StatusCode::kUnavailable, reason, "x")), "")
        << ReasonName(reason);
  }
}

TEST(ErrorsTest, MoreWorkersAreTheNextStepOnlyForOneThatIsDrained) {
  const auto step = [](const ErrorMetadata& metadata) {
    return NextStep(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                              "another apply was faster", metadata));
  };
  EXPECT_EQ(step({{"worker", "w0"}}), "add workers; 'syctl get workers' lists them");
  EXPECT_EQ(step({{"deployment", "local"}}), "");
}

}  // namespace
}  // namespace switchyard::ctl
