#include "coordinator/spec/dispatch_defaults.h"

#include <map>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

const auto kBadConfig = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

using Values = std::map<std::string, std::string>;

// An environment of the test's own, which counts what is looked up.
class Environment {
 public:
  explicit Environment(Values values = {}) : values_(std::move(values)) {}

  absl::StatusOr<ReadDispatchDefaults> Read(const DispatchOptions& options = {}) {
    return MakeDispatchDefaults(
        [this](const char* name) -> std::optional<std::string> {
          ++lookups[name];
          const auto it = values_.find(name);
          if (it == values_.end()) return std::nullopt;
          return it->second;
        },
        options);
  }
  std::map<std::string, int> lookups;

 private:
  Values values_;
};

TEST(DispatchDefaultsTest, AreAutoWithoutOptionsAndVariables) {
  SY_ASSERT_OK_AND_ASSIGN(const auto read, Environment(Values{{"HOME", "/nowhere"}}).Read());

  EXPECT_EQ(read.defaults, DispatchDefaults{});
  EXPECT_TRUE(read.warnings.empty());
}

// R2: the variable becomes a field with its source, and one warning that names the option.
TEST(DispatchDefaultsTest, TheVariableOfBf16IsAFieldWithItsSourceAndAWarning) {
  for (const char* const yes : {"1", "true", "TRUE", "Yes", "y", " 1 "}) {
    Environment environment(Values{{"SGLANG_DEEPEP_BF16_DISPATCH", yes}});

    SY_ASSERT_OK_AND_ASSIGN(const auto read, environment.Read());

    EXPECT_EQ(read.defaults.bf16_dispatch_flag, "the coordinator's environment") << yes;
    EXPECT_EQ(read.defaults.npu_normal_int8_flag, "");
    EXPECT_EQ(read.defaults.dispatcher_output_dtype, DtypeChoice::kAuto);
    ASSERT_EQ(read.warnings.size(), 1U);
    EXPECT_EQ(read.warnings[0].id, WarningId::kDeprecatedBf16Flag);
    EXPECT_NE(read.warnings[0].text.find("--dispatcher-output-dtype bf16"), std::string::npos);
  }
}

// R24
TEST(DispatchDefaultsTest, TheVariableOfInt8OnNpusIsAFieldOfItsOwn) {
  Environment environment(Values{{"DEEP_NORMAL_MODE_USE_INT8_QUANT", "1"}});

  SY_ASSERT_OK_AND_ASSIGN(const auto read, environment.Read());

  EXPECT_EQ(read.defaults.npu_normal_int8_flag, "the coordinator's environment");
  EXPECT_EQ(read.defaults.bf16_dispatch_flag, "");
  ASSERT_EQ(read.warnings.size(), 1U);
  EXPECT_EQ(read.warnings[0].id, WarningId::kDeprecatedNpuInt8Flag);
}

TEST(DispatchDefaultsTest, NoIsAsNotSet) {
  for (const char* const no : {"0", "false", "No", "n", "", " "}) {
    Environment environment(
        Values{{"SGLANG_DEEPEP_BF16_DISPATCH", no}, {"DEEP_NORMAL_MODE_USE_INT8_QUANT", no}});

    SY_ASSERT_OK_AND_ASSIGN(const auto read, environment.Read());

    EXPECT_EQ(read.defaults, DispatchDefaults{}) << "\"" << no << "\"";
    EXPECT_TRUE(read.warnings.empty());
  }
}

TEST(DispatchDefaultsTest, RefusesAVariableThatIsNeitherYesNorNo) {
  for (const char* const name :
       {"SGLANG_DEEPEP_BF16_DISPATCH", "DEEP_NORMAL_MODE_USE_INT8_QUANT"}) {
    const absl::Status refused = Environment(Values{{name, "2"}}).Read().status();

    EXPECT_THAT(refused, kBadConfig);
    EXPECT_EQ(MetadataOf(refused).at("field"), name);
    EXPECT_NE(refused.message().find("\"2\" is neither yes"), absl::string_view::npos);
  }
}

// R2: read once, at the start.
TEST(DispatchDefaultsTest, LooksUpEachVariableOnceAndNoOther) {
  Environment environment(Values{{"SGLANG_DEEPEP_BF16_DISPATCH", "1"}});

  SY_ASSERT_OK(environment.Read({.dispatcher_output_dtype = "fp8"}));

  EXPECT_EQ(environment.lookups, (std::map<std::string, int>{
                                     {"SGLANG_DEEPEP_BF16_DISPATCH", 1},
                                     {"DEEP_NORMAL_MODE_USE_INT8_QUANT", 1},
                                 }));
}

TEST(DispatchDefaultsTest, ReadsEveryChoiceInTheCurrentSpelling) {
  for (int i = 0; i <= static_cast<int>(DtypeChoice::kNvfp4); ++i) {
    const auto choice = static_cast<DtypeChoice>(i);

    SY_ASSERT_OK_AND_ASSIGN(
        const auto read,
        Environment().Read({.dispatcher_output_dtype = std::string(DtypeChoiceName(choice))}));

    EXPECT_EQ(read.defaults.dispatcher_output_dtype, choice);
    EXPECT_TRUE(read.warnings.empty());
  }
}

// R11: the released older spelling works, with one warning that names the new one.
TEST(DispatchDefaultsTest, TheOlderSpellingWorksWithAWarning) {
  SY_ASSERT_OK_AND_ASSIGN(const auto read,
                          Environment().Read({.deepep_dispatcher_output_dtype = "int8"}));

  EXPECT_EQ(read.defaults.dispatcher_output_dtype, DtypeChoice::kInt8);
  ASSERT_EQ(read.warnings.size(), 1U);
  EXPECT_EQ(read.warnings[0].text,
            "--deepep-dispatcher-output-dtype is deprecated; write --dispatcher-output-dtype "
            "instead");
  EXPECT_THAT(Environment().Read(
                  {.dispatcher_output_dtype = "int8", .deepep_dispatcher_output_dtype = "int8"}),
              kBadConfig);
}

// R10
TEST(DispatchDefaultsTest, RefusesAnUnknownDtypeWithAllThatThereAre) {
  const absl::Status refused = Environment().Read({.dispatcher_output_dtype = "fp9"}).status();

  EXPECT_THAT(refused, kBadConfig);
  EXPECT_EQ(refused.message(),
            "--dispatcher-output-dtype: \"fp9\" is not a wire dtype; did you mean \"fp8\"? (known: "
            "auto, bf16, fp8, int8, nvfp4)");
}

// R11: misspelled options, with and without a value beside them.
TEST(DispatchDefaultsTest, MisspelledOptionsAreRefusedWithTheRightName) {
  for (const char* const name :
       {"--dispather-output-dtype", "--deepep-dispather-output-dtype=bf16",
        "--deepep-dispatch-output-dtype", "--dispather", "--dispather-mode=x"}) {
    const absl::Status refused = CheckOptionName(name);

    EXPECT_THAT(refused, kBadConfig) << name;
    EXPECT_NE(refused.message().find("write --dispatcher-output-dtype"), absl::string_view::npos);
  }
  for (const char* const name : {"--dispatcher-output-dtype=fp8", "--listen", "dispather.yaml",
                                 "--deepep-dispatcher-output-dtype", "--deployment=dispather"}) {
    SY_EXPECT_OK(CheckOptionName(name)) << name;
  }
}

}  // namespace
}  // namespace switchyard
