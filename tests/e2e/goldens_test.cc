// The shipped programs as processes of their own: what verify says of the shipped model, one cell
// for each transport. matrix_test.cc has all cells.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/checks.h"

namespace switchyard {
namespace {

using ::testing::IsEmpty;
using testing::JsonOf;
using testing::ProgramResult;
using testing::RunVerify;

class GoldensTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldensTest, VerifyFindsEveryBlockRowAndCounterAsItShouldBe) {
  const ProgramResult ran = RunVerify({.transport = GetParam(), .mode = "", .workers = 2});

  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  const nlohmann::json report = JsonOf(ran);
  EXPECT_EQ(report["verdict"], "pass");
  EXPECT_THAT(report["failures"], IsEmpty());
  // p0 and p1 have four layers each, val has two; no name is left out for what it lacks.
  EXPECT_EQ(report["blocks"].size(), 10U);
  EXPECT_EQ(report["texts"].size(), 2U);
  EXPECT_EQ(report["top1"]["positions"], 37);
  ASSERT_EQ(report["workers"].size(), 2U);
  for (const nlohmann::json& worker : report["workers"]) {
    EXPECT_EQ(worker["counted"], worker["predicted"]);
    EXPECT_GT(worker["counted"]["rows"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(OnEachTransport, GoldensTest,
                         ::testing::Values("loopback", "shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

// In lockstep, with sums per worker and with the row of each expert.
TEST(GoldensOfGroupsTest, VerifyFindsEveryBlockAsItShouldBe) {
  for (const char* mode : {"normal", "low_latency"}) {
    const ProgramResult ran = RunVerify({.transport = "group", .mode = mode, .workers = 4});

    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    const nlohmann::json report = JsonOf(ran);
    EXPECT_EQ(report["verdict"], "pass") << mode;
    EXPECT_EQ(report["blocks"].size(), 10U);
    EXPECT_EQ(report["top1"]["positions"], 37);
  }
}

// R39: prompts travel normal and single tokens low_latency, as in the plan of a deployment that is
// asked for nothing; so the answers have the same bits.
TEST(GoldensOfAutoTest, GivesTheBitsOfThePlansOwnModes) {
  const ProgramResult planned = RunVerify({.transport = "loopback", .mode = "", .workers = 2});
  const ProgramResult by_step = RunVerify({.transport = "loopback", .mode = "auto", .workers = 2});

  EXPECT_EQ(planned.code, 0) << planned.out << planned.err;
  EXPECT_EQ(by_step.code, 0) << by_step.out << by_step.err;
  EXPECT_EQ(JsonOf(by_step)["digest"], JsonOf(planned)["digest"]);
  EXPECT_EQ(JsonOf(by_step)["verdict"], "pass");
}

}  // namespace
}  // namespace switchyard
