// What verify and eval do with their options, on the shipped model.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/checkpoint_edit.h"
#include "tests/e2e/checks.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::JsonOf;
using testing::ProgramResult;
using testing::RunEval;
using testing::RunVerify;
using testing::RunVerifyOf;

class TransportTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TransportTest, RowsTravelAsAsked) {
  const ProgramResult ran = RunVerify({.transport = GetParam(), .mode = "normal", .workers = 2});

  const nlohmann::json report = JsonOf(ran);
  ASSERT_EQ(report["workers"].size(), 2U);
  const std::string asked = GetParam();
  const nlohmann::json& first = report["workers"][0];
  const nlohmann::json& second = report["workers"][1];
  if (asked == "gateway") {
    // The gateway's own experts cost no wire bytes; the other worker's rows cross a ring.
    EXPECT_EQ(first["counted"]["request_bytes"], 0);
    EXPECT_EQ(second["path"], "mapped");
    EXPECT_GT(second["counted"]["request_bytes"], 0);
    return;
  }
  const std::string path = asked == "shm" ? "mapped" : asked == "tcp" ? "messages" : "inproc";
  EXPECT_EQ(first["path"], path);
  EXPECT_EQ(second["path"], path);
}

TEST_P(TransportTest, FourWindowsHaveTheirBitsPerByte) {
  const ProgramResult ran =
      RunEval({.transport = GetParam(), .mode = "", .workers = 4}, 4, "1.0901");

  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(JsonOf(ran)["windows"], 4);
}

INSTANTIATE_TEST_SUITE_P(OnEachTransport, TransportTest,
                         ::testing::Values("loopback", "shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

class TargetTest : public testing::Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Deploy(2);
    target_ = std::string(GetParam()) == "gateway" ? deployment_->worker_address(1)
                                                   : deployment_->coordinator();
  }
  std::string target_;
};

// Routed experts run on the workers alone: the client's checkpoint does not have any.
TEST_P(TargetTest, ARunningDeploymentPassesForAClientWithoutExperts) {
  const testing::TempDir dir;
  const std::string model = dir.Join("model");
  testing::CopyWithoutExperts(model);

  const ProgramResult ran = RunVerifyOf(target_, {"--transport", GetParam()}, model);
  const ProgramResult reference = testing::RunProgram(
      {std::string(testing::kBinDir) + "/verify", "--moe", "reference", "--model", model,
       "--golden", std::string(testing::kShippedModel) + "/golden.safetensors"});

  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(JsonOf(ran)["workers"].size(), 2U);
  EXPECT_EQ(reference.code, 2) << "the experts were there after all";
}

// The counts are of verify's own sessions, not of the worker.
TEST_P(TargetTest, AnEarlierSessionDoesNotCount) {
  const ProgramResult first = RunVerifyOf(target_, {"--transport", GetParam()});
  const ProgramResult second = RunVerifyOf(target_, {"--transport", GetParam()});

  EXPECT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_EQ(JsonOf(first)["workers"], JsonOf(second)["workers"]);
}

INSTANTIATE_TEST_SUITE_P(Over, TargetTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

TEST(ProgramOptionsTest, TargetRefusesWorkersAndLoopback) {
  const ProgramResult workers = RunVerifyOf("127.0.0.1:1", {"--workers", "2"});
  const ProgramResult loopback = RunVerifyOf("127.0.0.1:1", {"--transport", "loopback"});

  EXPECT_EQ(workers.code, 2);
  EXPECT_THAT(workers.err, HasSubstr("--workers"));
  EXPECT_EQ(loopback.code, 2);
  EXPECT_THAT(loopback.err, HasSubstr("loopback only works within one process"));
}

TEST(ProgramOptionsTest, NobodyAtTheTargetIsCouldNotCheck) {
  const ProgramResult ran = RunVerifyOf("127.0.0.1:1", {"--transport", "tcp"});

  EXPECT_EQ(ran.code, 2) << ran.out;
  EXPECT_EQ(JsonOf(ran)["error"]["reason"], "COORDINATOR_LOST") << ran.out;
}

}  // namespace
}  // namespace switchyard
