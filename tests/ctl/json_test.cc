#include "ctl/json.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/ctl/messages.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::DeploymentMessage;
using switchyard::testing::PlanMessage;
using switchyard::testing::ProblemMessage;
using switchyard::testing::WorkerMessage;

TEST(CtlJsonTest, SpeaksAsConfigurationFilesDo) {
  const Json json = ToJson(DeploymentMessage());

  EXPECT_EQ(json["spec"]["phases"][0]["mode"], "low_latency");
  EXPECT_EQ(json["spec"]["join_timeout"], "20s");
  EXPECT_EQ(json["state"], "serving");
  EXPECT_EQ(json["layers"], Json({0, 1, 4}));
  EXPECT_EQ(json["committed_epoch"], 3);
  EXPECT_EQ(json["plan_hash"], Sha256("a plan").ToHex());
}

TEST(CtlJsonTest, LeavesOutWhatIsNotSetAndKeepsWhatIsEmpty) {
  const Json json = ToJson(DeploymentMessage());

  EXPECT_FALSE(json["spec"]["phases"][1].contains("mode"));
  EXPECT_FALSE(json.contains("problem"));
  EXPECT_EQ(json["pending_epoch"], 0);
  EXPECT_EQ(json["left_out"], Json::array());
}

TEST(CtlJsonTest, GivesAnErrorWithItsReasonAndIds) {
  v1::Deployment deployment = DeploymentMessage();
  *deployment.mutable_problem() = ProblemMessage();

  const Json problem = ToJson(deployment)["problem"];

  EXPECT_EQ(problem["code"], "DATA_LOSS");
  EXPECT_EQ(problem["reason"], "WEIGHT_HASH");
  EXPECT_EQ(problem["metadata"]["worker"], "w1");
}

TEST(CtlJsonTest, ListsOfMessagesEnumsAndTextsKeepTheirOrder) {
  const Json worker = ToJson(WorkerMessage("w0"));
  const Json plan = ToJson(PlanMessage())["plan"];

  EXPECT_EQ(worker["capabilities"]["transports"], Json({"shm", "tcp"}));
  EXPECT_EQ(worker["capabilities"]["wire_dtypes"], Json({"bf16"}));
  EXPECT_EQ(worker["capabilities"]["weight_bytes_max"], std::uint64_t{3} << 29);
  EXPECT_EQ(worker["capabilities"]["gdn"], Json({{"verify_kernel", "triton"}, {"grid_2d", true}}));
  EXPECT_EQ(worker["resident"][0]["committed"], true);
  EXPECT_EQ(plan["layers"][2]["experts"][4]["expert"], 0);
  EXPECT_EQ(plan["configs"][0]["trail"].size(), 2U);
}

TEST(CtlJsonTest, KeysComeInTheOrderOfTheMessage) {
  EXPECT_EQ(ToJson(WorkerMessage("w0")).begin().key(), "id");
}

TEST(CtlJsonTest, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(Print(Json({{"a", "x\xff"}})), "{\n  \"a\": \"x\xef\xbf\xbd\"\n}\n");
}

TEST(CtlJsonTest, DurationsAreExactAndShort) {
  EXPECT_EQ(DurationText(std::chrono::seconds(20)), "20s");
  EXPECT_EQ(DurationText(std::chrono::milliseconds(1500)), "1.5s");
  EXPECT_EQ(DurationText(std::chrono::nanoseconds(1)), "0.000000001s");
  EXPECT_EQ(DurationText(Duration::zero()), "0s");
}

}  // namespace
}  // namespace switchyard::ctl
