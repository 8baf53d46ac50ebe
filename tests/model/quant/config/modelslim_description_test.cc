#include "model/quant/config/modelslim_description.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(ModelSlimDescriptionTest, KeepsTheTypesOfWeights) {
  SY_ASSERT_OK_AND_ASSIGN(
      const auto description,
      ModelSlimDescription::Parse(R"({"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0",
        "metadata": {"z.weight": 3, "group_size": -1, "deep": [[{}]]}, "optional": null,
        "m.b.weight": "W8A8_DYNAMIC", "m.b.weight_scale": "W8A8_DYNAMIC", "m.a.weight": "FLOAT"})"));

  EXPECT_EQ(description.modules(), 2U);
  ASSERT_NE(description.TypeOf("m.b"), nullptr);
  EXPECT_EQ(*description.TypeOf("m.b"), "W8A8_DYNAMIC");
  EXPECT_EQ(*description.TypeOf("m.a"), "FLOAT");
  EXPECT_EQ(description.TypeOf("m"), nullptr);
  EXPECT_EQ(description.TypeOf("m.b.weight"), nullptr);
  EXPECT_EQ(description.group_size(), 0);
}

TEST(ModelSlimDescriptionTest, GroupSizeIsWhatTheFileSaysOrShows) {
  const auto size = [](absl::string_view text) {
    return ModelSlimDescription::Parse(text).value().group_size();
  };

  EXPECT_EQ(size(R"({"group_size": 128})"), 128);
  EXPECT_EQ(size(R"({"group_size": 0, "m.weight_scale_second": "W4A8_DYNAMIC"})"), 0);
  EXPECT_EQ(size(R"({"m.weight_scale_second": "W4A8_DYNAMIC"})"), 256);
  EXPECT_EQ(size("{}"), 0);
}

TEST(ModelSlimDescriptionTest, RefusesWhatItCannotReadNamingTheKey) {
  struct Bad {
    std::string text;
    std::string key;
  };
  const std::string file = "quant_model_description.json";
  const Bad bad[] = {
      {"", file},
      {"[]", file},
      {"3", file},
      {"\"x\"", file},
      {"{", file},
      {"{\"a\": \"\xff\"}", file},
      {R"({"m.weight": 3})", "m.weight"},
      {R"({"m.weight": null})", "m.weight"},
      {R"({"m.weight": true})", "m.weight"},
      {R"({"m.weight": 1.5})", "m.weight"},
      {R"({"m.weight": ["W8A8_DYNAMIC"]})", "m.weight"},
      {R"({"m.weight": {"type": "W8A8_DYNAMIC"}})", "m.weight"},
      {R"({"m.weight": "FLOAT", "m.weight": "FLOAT"})", "m.weight"},
      {R"({"group_size": -1})", "group_size"},
      {R"({"group_size": "128"})", "group_size"},
      {R"({"group_size": 65537})", "group_size"},
      {R"({"group_size": 1, "group_size": 1})", "group_size"},
      {absl::StrCat("{\"a\": ", std::string(1'000, '['), std::string(1'000, ']'), "}"), "a"},
  };
  for (const Bad& row : bad) {
    const absl::Status status = ModelSlimDescription::Parse(row.text).status();
    ASSERT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << row.text;
    EXPECT_EQ(MetadataOf(status).at("key"), row.key) << status;
  }
}

TEST(ModelSlimDescriptionTest, HoldsToItsLimits) {
  const ModelSlimLimits limits{
      .file_bytes_max = 100, .modules_max = 2, .types_max = 1, .name_bytes_max = 20};
  const auto parse = [&](absl::string_view text) {
    return ModelSlimDescription::Parse(text, limits).status();
  };
  const auto refused = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);

  SY_EXPECT_OK(parse(R"({"a.weight": "T", "b.weight": "T"})"));
  EXPECT_THAT(parse(R"({"a.weight": "T", "b.weight": "T", "c.weight": "T"})"), refused);
  EXPECT_THAT(parse(R"({"a.weight": "T", "b.weight": "U"})"), refused);
  EXPECT_THAT(parse(R"({"aaaaaaaaaaaaaaaaaaaaaaaaaaa": 1})"), refused);
  EXPECT_THAT(parse(R"({"a.weight": "TTTTTTTTTTTTTTTTTTTTTTTTT"})"), refused);
  EXPECT_THAT(parse(absl::StrCat("{}", std::string(99, ' '))), refused);
}

}  // namespace
}  // namespace switchyard
