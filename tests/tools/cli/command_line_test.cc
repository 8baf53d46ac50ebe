#include "tools/cli/command_line.h"

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

std::optional<int> Parse(const std::vector<const char*>& arguments, CommonOptions& options) {
  std::vector<const char*> argv = {"program"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  CLI::App app;
  AddCommonOptions(app, options, /*with_format=*/true);
  return ParseCommandLine(app, static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLineTest, ReadsOptionsAndKeepsDefaults) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "some/folder"}, options), std::nullopt);
  EXPECT_EQ(options.model_dir, "some/folder");
  EXPECT_EQ(options.moe.moe, "deployment");
  EXPECT_FALSE(options.json());

  CommonOptions json;
  EXPECT_EQ(Parse({"--model", "m", "--format", "json", "--moe", "other"}, json), std::nullopt);
  EXPECT_TRUE(json.json());
  EXPECT_EQ(json.moe.moe, "other");
}

TEST(CommandLineTest, WhatCannotBeReadIsExitCodeTwoAndHelpIsZero) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{},
                                                    {"--model"},
                                                    {"--model", "m", "--format", "xml"},
                                                    {"--model", "m", "--no-such-option"}}) {
    CommonOptions options;
    EXPECT_EQ(Parse(arguments, options), kExitUsage);
  }
  CommonOptions options;
  EXPECT_EQ(Parse({"--help"}, options), kExitDone);
}

TEST(CommandLineTest, AModeIsOneOfThree) {
  for (const char* mode : {"normal", "low_latency", "auto"}) {
    CommonOptions options;
    EXPECT_EQ(Parse({"--model", "m", "--mode", mode}, options), std::nullopt);
    EXPECT_EQ(options.moe.mode, mode);
  }
  CommonOptions refused;
  EXPECT_EQ(Parse({"--model", "m", "--mode", "plan"}, refused), kExitUsage);
}

// R10: the values of the option are a closed list.
TEST(CommandLineTest, TakesAWireDtypeForADeploymentOfItsOwn) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "m", "--dispatcher-output-dtype", "nvfp4"}, options), std::nullopt);
  EXPECT_EQ(options.moe.dispatcher_output_dtype, "nvfp4");
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--model", "m", "--dispatcher-output-dtype", "fp4"},
        {"--model", "m", "--dispatcher-output-dtype", "fp8", "--target", "host:1"}}) {
    CommonOptions refused;
    EXPECT_EQ(Parse(arguments, refused), kExitUsage);
  }
}

TEST(CommandLineTest, TakesHowLongAStepIsRepeated) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "m"}, options), std::nullopt);
  EXPECT_EQ(options.moe.retry_for, kRetryForDefault);
  EXPECT_EQ(Parse({"--model", "m", "--retry-for", "0"}, options), std::nullopt);
  EXPECT_EQ(options.moe.retry_for, Duration::zero());
  CommonOptions refused;
  EXPECT_EQ(Parse({"--model", "m", "--retry-for", "-1"}, refused), kExitUsage);
}

TEST(CommandLineTest, TakesADeviceForADeploymentOfItsOwn) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "m"}, options), std::nullopt);
  EXPECT_EQ(options.moe.device, "cpu");
  EXPECT_EQ(Parse({"--model", "m", "--device", "cpu:compute_threads=2"}, options), std::nullopt);
  EXPECT_EQ(options.moe.device, "cpu:compute_threads=2");
  CommonOptions refused;
  EXPECT_EQ(Parse({"--model", "m", "--device", "cpu", "--target", "host:1"}, refused), kExitUsage);
}

TEST(CommandLineTest, NamesADeploymentOfARunningCoordinatorAlone) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "m", "--target", "host:1", "--deployment", "two"}, options),
            std::nullopt);
  EXPECT_EQ(options.moe.deployment, "two");
  CommonOptions refused;
  EXPECT_EQ(Parse({"--model", "m", "--deployment", "two"}, refused), kExitUsage);
}

TEST(CommandLineTest, NamesAModelOfARunningCoordinatorAlone) {
  CommonOptions options;
  EXPECT_EQ(Parse({"--model", "m", "--target", "host:1", "--served-model", "chat"}, options),
            std::nullopt);
  EXPECT_EQ(options.moe.served_model, "chat");
  CommonOptions refused;
  EXPECT_EQ(Parse({"--model", "m", "--served-model", "chat"}, refused), kExitUsage);
}

TEST(CommandLineTest, OpensAModelWithTheReferenceMoe) {
  const RandomModel model({.seed = 71});
  const CommonOptions options{
      .model_dir = model.dir(), .moe = {.moe = "reference"}, .format = "table"};

  SY_ASSERT_OK_AND_ASSIGN(const Model opened, OpenModel(options));

  EXPECT_EQ(opened.decoder->dims().hidden, 24U);
  EXPECT_GE(opened.moe->prefill().max_tokens, 1U);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertsReport report, opened.moe->Report());
  EXPECT_THAT(report.how, HasSubstr("reference"));
  EXPECT_TRUE(report.workers.empty());
}

TEST(CommandLineTest, RefusesAnUnknownMoeAndAMissingModel) {
  const RandomModel model({.seed = 72});
  const CommonOptions unknown{.model_dir = model.dir(), .moe = {.moe = "magic"}, .format = ""};
  const CommonOptions missing{.model_dir = model.dir() + "/none", .moe = {}, .format = ""};

  EXPECT_THAT(OpenModel(unknown).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(OpenModel(missing).status(),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

TEST(CommandLineTest, ReadsTextFilesWhole) {
  const testing::TempDir dir;
  std::string bytes(200'000, 'x');
  bytes[70'000] = '\0';
  const std::string path = dir.Write("text", bytes);

  SY_ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(path));
  SY_ASSERT_OK_AND_ASSIGN(const std::string empty, ReadTextFile(dir.Write("empty", "")));

  EXPECT_EQ(text, bytes);
  EXPECT_EQ(empty, "");
}

TEST(CommandLineTest, SaysWhyATextFileCannotBeRead) {
  const testing::TempDir dir;

  const auto missing = ReadTextFile(dir.Join("none"));
  const auto folder = ReadTextFile(dir.path());

  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(dir.Join("none")));
  EXPECT_THAT(folder, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
