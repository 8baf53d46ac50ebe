#include "model/safetensors/safetensors_index.h"

#include <string>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/io/checkpoint_error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

absl::StatusOr<SafetensorsIndex> Parse(absl::string_view json) {
  return ParseSafetensorsIndex(json, "dir/index.json");
}

TEST(SafetensorsIndexTest, SortsTensorsAndFilesAndKeepsWhichIsWhere) {
  SY_ASSERT_OK_AND_ASSIGN(
      const SafetensorsIndex index,
      Parse(R"({"metadata": {"total_size": 12, "total_parameters": 3, "x": {"total_size": []}},
                "other": [1, {"weight_map": 2}],
                "weight_map": {"c": "z.safetensors", "a": "y.safetensors", "b": "z.safetensors"}})"));

  EXPECT_EQ(index.files, (std::vector<std::string>{"y.safetensors", "z.safetensors"}));
  EXPECT_EQ(index.entries, (std::vector<SafetensorsIndex::Entry>{{"a", 0}, {"b", 1}, {"c", 1}}));
  EXPECT_EQ(index.total_bytes, 12U);
}

TEST(SafetensorsIndexTest, TotalSizeMayBeMissingOrAWholeFloat) {
  SY_ASSERT_OK_AND_ASSIGN(const SafetensorsIndex none, Parse(R"({"weight_map": {}})"));
  SY_ASSERT_OK_AND_ASSIGN(
      const SafetensorsIndex real,
      Parse(R"({"metadata": {"total_size": 141107412992.0}, "weight_map": {}})"));

  EXPECT_FALSE(none.total_bytes.has_value());
  EXPECT_EQ(real.total_bytes, 141'107'412'992U);
}

TEST(SafetensorsIndexTest, RefusesEveryNameThatIsNotABareShard) {
  const std::string long_name(256, 'a');
  for (const std::string& name :
       {std::string("/a.safetensors"), std::string("../a.safetensors"),
        std::string("b/a.safetensors"), std::string("a.bin"), std::string(".safetensors"),
        std::string(""), std::string("."), std::string(".."), std::string("a\\u0000.safetensors"),
        long_name + ".safetensors"}) {
    const absl::Status status = Parse(R"({"weight_map": {"t": ")" + name + "\"}}").status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint)) << name;
    EXPECT_EQ(MetadataOf(status).at("kind"), "UNSAFE_FILE_NAME") << name;
  }
}

TEST(SafetensorsIndexTest, RefusesWhatIsNoIndex) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "JSON_ERROR"},
      {"{", "JSON_ERROR"},
      {std::string("{\"weight_map\": {}}\0x", 20), "JSON_ERROR"},
      {"{\"weight_map\": {\"\xc3\": \"a.safetensors\"}}", "JSON_ERROR"},
      {"[]", "INDEX_INVALID"},
      {"1", "INDEX_INVALID"},
      {"\"weight_map\"", "INDEX_INVALID"},
      {"{}", "INDEX_INVALID"},
      {R"({"weight_map": null})", "INDEX_INVALID"},
      {R"({"weight_map": []})", "INDEX_INVALID"},
      {R"({"weight_map": "a.safetensors"})", "INDEX_INVALID"},
      {R"({"weight_map": {"t": 1}})", "INDEX_INVALID"},
      {R"({"weight_map": {"t": true}})", "INDEX_INVALID"},
      {R"({"weight_map": {"t": ["a.safetensors"]}})", "INDEX_INVALID"},
      {R"({"weight_map": {"t": {"u": "a.safetensors"}}})", "INDEX_INVALID"},
      {R"({"metadata": {"total_size": "12"}, "weight_map": {}})", "INDEX_INVALID"},
      {R"({"metadata": {"total_size": -1}, "weight_map": {}})", "INDEX_INVALID"},
      {R"({"metadata": {"total_size": 1.5}, "weight_map": {}})", "INDEX_INVALID"},
      {R"({"metadata": {"total_size": [1]}, "weight_map": {}})", "INDEX_INVALID"},
      {R"({"metadata": {"total_size": null}, "weight_map": {}})", "INDEX_INVALID"},
      {R"({"x": )" + std::string(100, '[') + std::string(100, ']') + "}", "INDEX_INVALID"},
      {R"({"weight_map": {}, "weight_map": {}})", "DUPLICATE_KEY"},
      {R"({"metadata": {}, "metadata": {}, "weight_map": {}})", "DUPLICATE_KEY"},
      {R"({"metadata": {"total_size": 1, "total_size": 1}, "weight_map": {}})", "DUPLICATE_KEY"},
      {R"({"weight_map": {"t": "a.safetensors", "t": "b.safetensors"}})", "DUPLICATE_KEY"},
  };
  for (const auto& [json, kind] : cases) {
    const absl::Status status = Parse(json).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint)) << json;
    EXPECT_EQ(MetadataOf(status)["kind"], kind) << json;
    EXPECT_EQ(MetadataOf(status)["file"], "dir/index.json") << json;
  }
}

TEST(SafetensorsIndexTest, HoldsItsLimits) {
  const std::string json =
      R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}})";
  SY_EXPECT_OK(ParseSafetensorsIndex(json, "i", {.entries_max = 3, .files_max = 2}));

  EXPECT_EQ(
      MetadataOf(
          ParseSafetensorsIndex(json, "i", {.entries_max = 2, .files_max = 2}).status())["kind"],
      "TOO_MANY_TENSORS");
  EXPECT_EQ(
      MetadataOf(
          ParseSafetensorsIndex(json, "i", {.entries_max = 3, .files_max = 1}).status())["kind"],
      "INDEX_INVALID");
}

TEST(SafetensorsIndexTest, SurvivesRandomDamage) {
  const std::string json =
      R"({"metadata": {"total_size": 12}, "weight_map": {"c": "z.safetensors", "a": "y.safetensors"}})";
  constexpr std::uint64_t kSeed = 5;
  SeededRng rng(kSeed);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = json;
    for (std::uint64_t edits = 1 + rng.Below(3); edits > 0; --edits) {
      damaged[rng.Below(damaged.size())] = "{}[],:\"0a./\\\x01\xff"[rng.Below(14)];
    }
    const auto index = Parse(damaged);
    if (index.ok()) {
      for (const std::string& file : index->files) {
        ASSERT_EQ(file.find('/'), std::string::npos) << "seed " << kSeed << "\n" << damaged;
      }
    } else {
      ASSERT_EQ(ReasonOf(index.status()), Reason::kCheckpoint) << damaged;
    }
  }
}

}  // namespace
}  // namespace switchyard
