#include "quantize/command_line.h"

#include <string>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::quantize {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParsedCommandLine Parse(const std::string& words) {
  return ParseCommandLine(absl::StrSplit(words, ' ', absl::SkipEmpty()));
}

TEST(CommandLineTest, ReadsEveryOption) {
  const ParsedCommandLine parsed = Parse(
      "--scheme nvfp4 --layout compressed_tensors_nvfp4 --in a --out b --calibrate c "
      "--exclude model.layers.1.* --exclude re:mtp --keep-bf16-layers 0,3 "
      "--shard-bytes 2GB --force");

  ASSERT_TRUE(parsed.line.has_value()) << parsed.text;
  const QuantizeOptions& options = parsed.line->options;
  EXPECT_EQ(std::string(options.scheme->name), "compressed_tensors_nvfp4");
  EXPECT_EQ(options.in, "a");
  EXPECT_EQ(options.out, "b");
  EXPECT_EQ(parsed.line->calibrate, "c");
  EXPECT_THAT(options.exclude, ElementsAre("model.layers.1.*", "re:mtp"));
  EXPECT_THAT(options.keep_bf16_layers, ElementsAre(0, 3));
  EXPECT_EQ(options.shard_bytes, 2'000'000'000U);
  EXPECT_TRUE(options.force);
}

TEST(CommandLineTest, DefaultsReplaceNothing) {
  const ParsedCommandLine parsed = Parse("--scheme awq --in a --out b");
  ASSERT_TRUE(parsed.line.has_value()) << parsed.text;
  EXPECT_FALSE(parsed.line->options.force);
  EXPECT_EQ(parsed.line->options.shard_bytes, 5'000'000'000U);
}

TEST(CommandLineTest, WrongWordsSayWhatIsMeant) {
  const auto says = [](const std::string& words) {
    const ParsedCommandLine parsed = Parse(words);
    EXPECT_FALSE(parsed.line.has_value()) << words;
    EXPECT_EQ(parsed.exit_code, 2) << words;
    return parsed.text;
  };
  EXPECT_THAT(says("--in a --out b"), HasSubstr("--scheme is missing"));
  EXPECT_THAT(says("--scheme awq --out b"), HasSubstr("--in is missing"));
  EXPECT_THAT(says("--scheme awqq --in a --out b"), HasSubstr("did you mean \"awq\"?"));
  EXPECT_THAT(says("--scheme awq --in a --out b --shard-bytes 0"), HasSubstr("above 0"));
  EXPECT_THAT(says("--scheme awq --in a --out b --keep-bf16-layers x"), HasSubstr("--help"));
  EXPECT_THAT(says("--scheme awq --in a --out b stray"), HasSubstr("stray"));
}

TEST(CommandLineTest, ListNeedsNothingElse) {
  const ParsedCommandLine parsed = Parse("--list");
  ASSERT_TRUE(parsed.line.has_value());
  EXPECT_TRUE(parsed.line->list);
}

TEST(CommandLineTest, HelpShowsTheCalibrationFileAndExamples) {
  const ParsedCommandLine parsed = Parse("--help");
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(parsed.text, HasSubstr("switchyard_amax"));
  EXPECT_THAT(parsed.text, HasSubstr("--scheme fp8_block --in"));
}

}  // namespace
}  // namespace switchyard::quantize
