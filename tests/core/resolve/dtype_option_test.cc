#include "core/resolve/dtype_option.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using ::testing::HasSubstr;

const auto kBadConfig = FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig);

TEST(DtypeOptionTest, ReadsEveryChoice) {
  for (int i = 0; i <= static_cast<int>(DispatchDtype::kNvfp4); ++i) {
    const auto dtype = static_cast<DispatchDtype>(i);
    SY_ASSERT_OK_AND_ASSIGN(const auto choice, ParseDtypeChoice(DispatchDtypeName(dtype), "x"));
    EXPECT_EQ(choice, dtype);
  }
  SY_ASSERT_OK_AND_ASSIGN(const auto automatic, ParseDtypeChoice("auto", "x"));
  EXPECT_EQ(automatic, std::nullopt);
}

TEST(DtypeOptionTest, ChoicesAreAutoAndEveryDtype) {
  EXPECT_EQ(ChosenDtype(DtypeChoice::kAuto), std::nullopt);
  EXPECT_EQ(DtypeChoiceName(DtypeChoice::kAuto), "auto");
  for (int i = 1; i <= static_cast<int>(DtypeChoice::kNvfp4); ++i) {
    const auto choice = static_cast<DtypeChoice>(i);
    SY_ASSERT_OK_AND_ASSIGN(const auto read, ParseDtypeChoice(DtypeChoiceName(choice), "x"));
    EXPECT_EQ(read, ChosenDtype(choice));
    EXPECT_TRUE(read.has_value());
  }
}

// R10: an unknown dtype is an error, never a silent default.
TEST(DtypeOptionTest, RefusesUnknownChoicesAndSaysWhatIsMeant) {
  for (const char* const text : {"", "fp9", "FP8", "bf16 ", "e4m3", "none", "float8"}) {
    EXPECT_THAT(ParseDtypeChoice(text, "phases[0].dispatcher_output_dtype"), kBadConfig) << text;
  }
  const absl::Status refused = ParseDtypeChoice("bf61", "layers.3").status();
  EXPECT_EQ(
      refused.message(),
      "layers.3: \"bf61\" is not a wire dtype; did you mean \"bf16\"? (known: auto, bf16, fp8, "
      "int8, nvfp4)");
}

// R11: the released older spelling works, with a word about it.
TEST(DtypeOptionTest, KnowsTheCurrentAndTheDeprecatedSpelling) {
  for (const char* const name : {"--dispatcher-output-dtype", "dispatcher_output_dtype"}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto spelling, SpellingOfDtypeOption(name));
    EXPECT_EQ(spelling, OptionSpelling::kCurrent) << name;
  }
  for (const char* const name :
       {"--deepep-dispatcher-output-dtype", "deepep_dispatcher_output_dtype"}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto spelling, SpellingOfDtypeOption(name));
    EXPECT_EQ(spelling, OptionSpelling::kDeprecated) << name;
  }
  EXPECT_THAT(DeprecatedSpellingText("--deepep-dispatcher-output-dtype"),
              HasSubstr("write --dispatcher-output-dtype instead"));
  EXPECT_THAT(DeprecatedSpellingText("deepep_dispatcher_output_dtype"),
              HasSubstr("write dispatcher_output_dtype instead"));
}

// R11: spellings of the drafts, and slips of the hand, are refused with the right name.
TEST(DtypeOptionTest, RefusesMisspelledNamesWithTheRightOne) {
  for (const char* const name :
       {"--dispather-output-dtype", "--deepep-dispather-output-dtype",
        "--deepep-dispatch-output-dtype", "--dispatch-output-dtype", "--dispatcher-ouput-dtype",
        "--dispatcher-output-type", "--deepep-dispatcher-output-dtpye"}) {
    const absl::Status refused = SpellingOfDtypeOption(name).status();
    EXPECT_THAT(refused, kBadConfig) << name;
    EXPECT_EQ(refused.message(),
              std::string(name) + " is misspelled; write --dispatcher-output-dtype");
  }
  for (const char* const key : {"dispather_output_dtype", "deepep_dispatch_output_dtype"}) {
    EXPECT_EQ(SpellingOfDtypeOption(key).status().message(),
              std::string(key) + " is misspelled; write dispatcher_output_dtype");
  }
}

TEST(DtypeOptionTest, LeavesOtherNamesAlone) {
  for (const char* const name : {"--max-tokens-per-step", "checkpoint", "--deepep-mode", "mode",
                                 "bf16_dispatch", "input_global_scale", ""}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto spelling, SpellingOfDtypeOption(name));
    EXPECT_EQ(spelling, OptionSpelling::kUnrelated) << name;
  }
}

}  // namespace
}  // namespace switchyard
