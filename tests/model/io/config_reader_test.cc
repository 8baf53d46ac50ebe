#include "model/io/config_reader.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/model_config.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

ConfigReader Reader(absl::string_view json) {
  absl::StatusOr<ConfigReader> reader = ConfigReader::Parse(json);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

TEST(ConfigReaderTest, ReadsEachTypeUnderEitherSpelling) {
  const ConfigReader reader = Reader(
      R"({"i": -3, "n": 2.5, "b": true, "s": "text", "is": [1, 2], "ss": ["x", "y"],
          "deep": {"er": {"i": 9}}, "none": null})");

  SY_ASSERT_OK_AND_ASSIGN(const auto i, reader.Int({"absent", "i"}, {-5, 5}));
  SY_ASSERT_OK_AND_ASSIGN(const auto deep, reader.Int({"deep.er.i"}, {0, 9}));
  SY_ASSERT_OK_AND_ASSIGN(const auto n, reader.PositiveNumber({"n"}));
  SY_ASSERT_OK_AND_ASSIGN(const auto b, reader.Bool({"b"}));
  SY_ASSERT_OK_AND_ASSIGN(const auto s, reader.String({"s"}));
  SY_ASSERT_OK_AND_ASSIGN(const auto is, reader.Ints({"is"}, {0, 5}));
  SY_ASSERT_OK_AND_ASSIGN(const auto ss, reader.Strings({"ss"}));
  EXPECT_EQ(i, -3);
  EXPECT_EQ(deep, 9);
  EXPECT_EQ(n, 2.5);
  EXPECT_EQ(b, true);
  EXPECT_EQ(s, "text");
  EXPECT_EQ(is, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(ss, (std::vector<std::string>{"x", "y"}));

  SY_ASSERT_OK_AND_ASSIGN(const auto missing, reader.String({"none", "absent", "s.t", "deep.x"}));
  EXPECT_FALSE(missing.has_value());
  EXPECT_TRUE(reader.Has({"absent", "deep.er"}));
  EXPECT_FALSE(reader.Has({"none", "absent"}));
}

TEST(ConfigReaderTest, RefusesTextsThatAreNotOneSoundObject) {
  const std::string nul("{}\0{}", 5);
  const std::string deep = "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}";
  for (const std::string& json :
       {std::string(), std::string("x"), std::string("[]"), std::string("3"), std::string("{"),
        std::string("{}}"), std::string("{\"a\":1e999}"), std::string("{\"a\":\"\xff\"}"), nul,
        deep, std::string("{\"a\":1,\"a\":1}"), std::string("{\"x\":{\"a\":1,\"a\":2}}"),
        "{\"a\":\"" + std::string(17U << 20U, 'x') + "\"}"}) {
    EXPECT_THAT(ConfigReader::Parse(json).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << json.substr(0, 40);
  }
  SY_EXPECT_OK(ConfigReader::Parse("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}"));
  SY_EXPECT_OK(ConfigReader::Parse("{\"x\":{\"a\":1},\"y\":{\"a\":2}}"));
}

TEST(ConfigReaderTest, ParsingAConfigSurvivesRandomDamage) {
  const std::string json = testing::SmallConfig();
  SY_ASSERT_OK(ParseModelConfig(json));
  constexpr std::uint64_t kSeed = 77;
  SeededRng rng(kSeed);
  for (int round = 0; round < 5'000; ++round) {
    std::string damaged = json;
    for (std::uint64_t edits = 1 + rng.Below(3); edits > 0; --edits) {
      damaged[rng.Below(damaged.size())] = "{}[],:\"019-.e\x01\xff"[rng.Below(15)];
    }
    const auto config = ParseModelConfig(damaged);
    if (config.ok()) {
      // What is accepted keeps the promises that others divide and allocate by.
      ASSERT_TRUE(config->decoder.has_value()) << damaged;
      ASSERT_GT(config->decoder->heads, 0) << "seed " << kSeed << "\n" << damaged;
      ASSERT_EQ(config->decoder->heads % config->decoder->kv_heads, 0) << damaged;
      ASSERT_LE(config->top_k, config->experts) << damaged;
    } else {
      ASSERT_NE(ReasonOf(config.status()), Reason::kUnspecified) << damaged;
    }
  }
}

}  // namespace
}  // namespace switchyard
