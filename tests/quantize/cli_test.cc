#include "quantize/cli.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "quantize/scheme_table.h"
#include "tests/quantize/checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::quantize {
namespace {

namespace fs = std::filesystem;
using switchyard::testing::TempDir;
using ::testing::HasSubstr;

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    switchyard::testing::WriteCheckpoint(in_, {}, 31);
    around_ = {.out_is_terminal = false,
               .clock = &clock_,
               .show_progress = [&](const std::string& line) { lines_.push_back(line); },
               .interrupted = [&] { return interrupt_; }};
  }

  std::vector<std::string> Words(const std::string& scheme) {
    return {"--scheme", scheme, "--in", in_.path(), "--out", work_.Join("out")};
  }

  const TempDir in_;
  const TempDir work_;
  ManualClock clock_;
  Surroundings around_;
  std::vector<std::string> lines_;
  bool interrupt_ = false;
};

TEST_F(CliTest, SaysWhatItWroteAsATableOrAsJson) {
  const CliResult json = RunCli(Words("awq"), around_);
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out).at("scheme"), "awq");
  around_.out_is_terminal = true;
  std::vector<std::string> words = Words("awq");
  words.emplace_back("--force");
  const CliResult table = RunCli(words, around_);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("layers      0,2 quantized, - in BF16\n"));
  ASSERT_FALSE(lines_.empty());
  EXPECT_THAT(lines_.back(), HasSubstr("tensors"));
}

TEST_F(CliTest, ErrorsAreObjectsToProgramsAndTextToPeople) {
  const CliResult json = RunCli(Words("w4afp8"), around_);
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out).at("error").at("reason"), "BAD_CONFIG");
  EXPECT_THAT(json.err, HasSubstr("--calibrate"));
  around_.out_is_terminal = true;
  EXPECT_EQ(RunCli(Words("w4afp8"), around_).out, "");
}

TEST_F(CliTest, ReadsTheCalibrationFile) {
  std::vector<std::string> words = Words("nvfp4");
  const auto amax = switchyard::testing::RandomAmax({0, 2}, 4, 32);
  SY_ASSERT_OK(WriteAmaxFile(work_.Join("amax.json"), amax));
  words.insert(words.end(), {"--calibrate", work_.Join("amax.json")});

  EXPECT_EQ(RunCli(words, around_).exit_code, 0);
  words.back() = work_.Join("none.json");
  EXPECT_EQ(RunCli(words, around_).exit_code, 1);
}

TEST_F(CliTest, AnInterruptedRunLeavesNothing) {
  interrupt_ = true;
  const CliResult result = RunCli(Words("fp8_block"), around_);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
  EXPECT_TRUE(fs::is_empty(work_.path()));
}

TEST_F(CliTest, ListsTheSchemes) {
  EXPECT_EQ(nlohmann::json::parse(RunCli({"--list"}, around_).out).size(), WriteSchemes().size());
  around_.out_is_terminal = true;
  EXPECT_THAT(RunCli({"--list"}, around_).out, HasSubstr("compressed_tensors_fp8_channel"));
  EXPECT_EQ(RunCli({"--nonsense"}, around_).exit_code, 2);
  EXPECT_EQ(RunCli({"--help"}, around_).exit_code, 0);
}

}  // namespace
}  // namespace switchyard::quantize
