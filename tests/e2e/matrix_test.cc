// Every number of workers, mode and transport against the goldens; one verify process a cell.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/checks.h"

namespace switchyard {
namespace {

using testing::Cell;
using testing::JsonOf;
using testing::ProgramResult;
using testing::RunEval;
using testing::RunVerify;

constexpr int kWorkersMax = 4;

class MatrixTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs one cell, which must pass, and returns the digest of its answers.
  static nlohmann::json Check(const std::string& mode, int workers) {
    const ProgramResult ran =
        RunVerify({.transport = GetParam(), .mode = mode, .workers = workers});
    const nlohmann::json report = JsonOf(ran);
    EXPECT_EQ(ran.code, 0) << mode << ", " << workers << " workers\n" << ran.out << ran.err;
    EXPECT_EQ(report["workers"].size(), static_cast<std::size_t>(workers));
    EXPECT_TRUE(report["digest"].is_string());
    return report["digest"];
  }
};

TEST_P(MatrixTest, NormalHoldsOnOneToFourWorkersAndRepeatsOnOnePlacement) {
  for (int workers = 1; workers <= kWorkersMax; ++workers) {
    const nlohmann::json first = Check("normal", workers);
    if (workers == 3) {
      EXPECT_EQ(Check("normal", workers), first);
    }
  }
}

// Against one worker in this process: what holds for each transport so holds among all.
TEST_P(MatrixTest, LowLatencyHoldsOnOneToFourWorkersBitEqual) {
  const ProgramResult one =
      RunVerify({.transport = "loopback", .mode = "low_latency", .workers = 1});
  const nlohmann::json expected = JsonOf(one)["digest"];

  for (int workers = 1; workers <= kWorkersMax; ++workers) {
    EXPECT_EQ(Check("low_latency", workers), expected) << workers << " workers";
  }
}

INSTANTIATE_TEST_SUITE_P(On, MatrixTest, ::testing::Values("loopback", "shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

TEST(WholeTextTest, HasItsBitsPerByte) {
  const ProgramResult ran =
      RunEval({.transport = "loopback", .mode = "", .workers = 4}, 117, "1.3135");

  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
}

}  // namespace
}  // namespace switchyard
