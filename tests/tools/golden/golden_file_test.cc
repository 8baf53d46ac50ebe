#include "tools/golden/golden_file.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/golden/golden_builder.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr GoldenShape kShape{.layers = 3, .hidden = 2, .vocab = 4, .positions = 8};

// A block of two rows and a text of two ids; each case adds to it or replaces a part.
struct Parts {
  std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> out = {5, 6, 7, 8};
  std::vector<std::int32_t> ids = {3, 0};
  std::vector<float> logits = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::int32_t> greedy = {3, 0, 1, 2};
};

GoldenBuilder Whole(const std::string& name) {
  const Parts parts;
  GoldenBuilder builder;
  builder.Floats(name + ".l1.moe_in", 2, parts.in)
      .Floats(name + ".l1.moe_out", 2, parts.out)
      .Ids(name + ".ids", parts.ids)
      .Floats(name + ".logits", 2, parts.logits)
      .Ids(name + ".greedy", parts.greedy);
  return builder;
}

TEST(GoldenTest, SortsTensorsIntoBlocksAndTexts) {
  const Parts parts;
  const testing::TempDir dir;
  GoldenBuilder builder = Whole("b.with.dots.l1");
  builder.Floats("a.l2.moe_out", 2, parts.out)
      .Floats("a.l2.moe_in", 2, parts.in)
      .Floats("a.l0.moe_in", 1, std::vector<float>{9, 9})
      .Floats("a.l0.moe_out", 1, std::vector<float>{8, 8})
      .Ids("stranger", {1})
      .Ids("a.other", {1});

  SY_ASSERT_OK_AND_ASSIGN(const auto golden, GoldenFile::Open(builder.Write(dir), kShape));

  ASSERT_EQ(golden->blocks().size(), 3U);
  EXPECT_EQ(golden->blocks()[0].name, "a");
  EXPECT_EQ(golden->blocks()[0].layer, LayerId{0});
  EXPECT_EQ(golden->blocks()[0].rows, 1U);
  EXPECT_EQ(golden->blocks()[1].layer, LayerId{2});
  EXPECT_EQ(golden->blocks()[2].name, "b.with.dots.l1");
  ASSERT_EQ(golden->texts().size(), 1U);
  EXPECT_EQ(golden->texts()[0].name, "b.with.dots.l1");
  EXPECT_EQ(golden->texts()[0].ids, parts.ids);
  EXPECT_EQ(golden->texts()[0].logits, parts.logits);
  EXPECT_EQ(golden->texts()[0].greedy, parts.greedy);
  EXPECT_THAT(golden->ignored(), ::testing::UnorderedElementsAre("stranger", "a.other"));
  SY_ASSERT_OK_AND_ASSIGN(const GoldenBlockData data, golden->ReadBlock(golden->blocks()[2]));
  EXPECT_EQ(data.in, parts.in);
  EXPECT_EQ(data.out, parts.out);
}

TEST(GoldenTest, TakesAnyPartOfAName) {
  const Parts parts;
  const testing::TempDir dir;
  GoldenBuilder only_logits;
  only_logits.Ids("p.ids", parts.ids).Floats("p.logits", 2, parts.logits);
  GoldenBuilder only_greedy;
  only_greedy.Ids("p.ids", parts.ids).Ids("p.greedy", parts.greedy);
  GoldenBuilder logits_without_ids = Whole("q");
  logits_without_ids.Floats("p.logits", 2, parts.logits);

  for (const GoldenBuilder& builder : {only_logits, only_greedy, logits_without_ids}) {
    SY_EXPECT_OK(GoldenFile::Open(builder.Write(dir), kShape));
  }
}

// A file that would be right but for one change, the tensor that is to blame, and why.
struct Damage {
  const char* tensor;
  Reason reason;
  std::function<void(GoldenBuilder&)> change;
  const char* text;
};

void ExpectRefused(const std::vector<Damage>& cases) {
  for (const Damage& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.tensor << ": " << c.text);
    const testing::TempDir dir;
    GoldenBuilder builder = Whole("ok");
    c.change(builder);
    const std::string path = builder.Write(dir);

    const auto golden = GoldenFile::Open(path, kShape);

    ASSERT_THAT(golden, FailsWith(absl::StatusCode::kInvalidArgument, c.reason));
    EXPECT_THAT(std::string(golden.status().message()), HasSubstr(c.text));
    EXPECT_EQ(MetadataOf(golden.status()).at("tensor"), c.tensor);
    EXPECT_EQ(MetadataOf(golden.status()).at("file"), path);
  }
}

TEST(GoldenTest, RefusesBlocksThatCannotBeChecked) {
  const Parts p;
  ExpectRefused({
      {"x.l3.moe_in", Reason::kUnknownLayer,
       [&](GoldenBuilder& b) { b.Floats("x.l3.moe_in", 2, p.in); }, "layers 0 to 2"},
      {"x.l01.moe_in", Reason::kBadRequest,
       [&](GoldenBuilder& b) { b.Floats("x.l01.moe_in", 2, p.in); }, "<name>.l<layer>.moe_in"},
      {"x.l-1.moe_in", Reason::kUnknownLayer,
       [&](GoldenBuilder& b) { b.Floats("x.l-1.moe_in", 2, p.in); }, "layers 0 to 2"},
      {"x.l99999999999.moe_out", Reason::kBadRequest,
       [&](GoldenBuilder& b) { b.Floats("x.l99999999999.moe_out", 2, p.in); }, "its name"},
      {"x.moe_in", Reason::kBadRequest, [&](GoldenBuilder& b) { b.Floats("x.moe_in", 2, p.in); },
       "its name"},
      {"l1.moe_in", Reason::kBadRequest, [&](GoldenBuilder& b) { b.Floats("l1.moe_in", 2, p.in); },
       "its name"},
      {"x..moe_in", Reason::kBadRequest, [&](GoldenBuilder& b) { b.Floats("x..moe_in", 2, p.in); },
       "its name"},
      {"x.l0.moe_in", Reason::kBadShape,
       [&](GoldenBuilder& b) { b.Floats("x.l0.moe_in", 2, p.in); }, "moe_out is missing"},
      {"x.l0.moe_out", Reason::kBadShape,
       [&](GoldenBuilder& b) { b.Floats("x.l0.moe_out", 2, p.in); }, "moe_in is missing"},
      {"x.l0.moe_out", Reason::kBadShape,
       [&](GoldenBuilder& b) {
         b.Floats("x.l0.moe_in", 2, p.in).Floats("x.l0.moe_out", 1, std::vector<float>{1, 2});
       },
       "1 rows, its moe_in has 2"},
      {"x.l0.moe_in", Reason::kBadShape,
       [&](GoldenBuilder& b) { b.Floats("x.l0.moe_in", 1, p.in); }, "shape is [1, 4], not [n, 2]"},
      {"x.l0.moe_in", Reason::kBadShape,
       [&](GoldenBuilder& b) { b.Add(testing::F32Tensor("x.l0.moe_in", {4}, p.in)); }, "shape"},
      {"x.l0.moe_in", Reason::kBadShape,
       [&](GoldenBuilder& b) {
         b.Add(testing::F32Tensor("x.l0.moe_in", {0, 2}, {}));
       },
       "n of 1 or more"},
      {"x.l0.moe_in", Reason::kBadDtype,
       [&](GoldenBuilder& b) {
         b.Add(testing::Bf16Tensor("x.l0.moe_in", {2, 2}, p.in));
       },
       "dtype is BF16, not F32"},
  });
}

TEST(GoldenTest, RefusesTextsThatCannotBeChecked) {
  const Parts p;
  const std::vector<float> nan = {1, std::numeric_limits<float>::quiet_NaN(), 3, 4, 5, 6, 7, 8};
  ExpectRefused({
      {"x.ids", Reason::kBadDtype,
       [&](GoldenBuilder& b) { b.Add(testing::F32Tensor("x.ids", {4}, p.in)); }, "not I32"},
      {"x.ids", Reason::kBadShape, [&](GoldenBuilder& b) { b.Ids("x.ids", {}); }, "not [n]"},
      {"x.ids", Reason::kBadRequest,
       [&](GoldenBuilder& b) {
         b.Ids("x.ids", {0, 4});
       },
       "element 1 is 4; the vocabulary is 0 to 3"},
      {"x.ids", Reason::kBadRequest, [&](GoldenBuilder& b) { b.Ids("x.ids", {-1}); },
       "element 0 is -1"},
      {"x.ids", Reason::kBadShape,
       [&](GoldenBuilder& b) { b.Ids("x.ids", std::vector<std::int32_t>(9, 1)); },
       "it has 9 tokens; the model has 8 positions"},
      {"x.logits", Reason::kBadShape,
       [&](GoldenBuilder& b) {
         b.Ids("x.ids", {1, 2, 3}).Floats("x.logits", 2, p.logits);
       },
       "2 rows for 3 ids"},
      {"x.logits", Reason::kBadRequest, [&](GoldenBuilder& b) { b.Floats("x.logits", 2, nan); },
       "element 1 is not a finite"},
      {"x.greedy", Reason::kBadRequest,
       [&](GoldenBuilder& b) {
         b.Ids("x.ids", {1, 2}).Ids("x.greedy", {1, 3, 2});
       },
       "does not start with x.ids"},
      {"x.greedy", Reason::kBadRequest,
       [&](GoldenBuilder& b) {
         b.Ids("x.ids", {1, 2}).Ids("x.greedy", {1});
       },
       "does not start with x.ids"},
      {"x.greedy", Reason::kBadShape,
       [&](GoldenBuilder& b) {
         b.Ids("x.ids", {1}).Ids("x.greedy", std::vector<std::int32_t>(9, 1));
       },
       "9 tokens"},
  });
}

TEST(GoldenTest, RefusesFilesWithNothingToCheck) {
  const Parts parts;
  GoldenBuilder strangers;
  strangers.Ids("stranger", {1});
  GoldenBuilder only_ids;
  only_ids.Ids("p.ids", parts.ids);
  GoldenBuilder no_ids;
  no_ids.Floats("p.logits", 2, parts.logits).Ids("p.greedy", parts.greedy);
  GoldenBuilder no_new_token;
  no_new_token.Ids("p.ids", parts.ids).Ids("p.greedy", parts.ids);

  for (const GoldenBuilder& builder :
       {GoldenBuilder(), strangers, only_ids, no_ids, no_new_token}) {
    const testing::TempDir dir;

    const auto golden = GoldenFile::Open(builder.Write(dir), kShape);

    ASSERT_THAT(golden, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
    EXPECT_THAT(std::string(golden.status().message()), HasSubstr("it has nothing to check"));
  }
}

TEST(GoldenTest, RefusesABlockWhoseNumbersAreNotFinite) {
  const testing::TempDir dir;
  GoldenBuilder builder;
  const std::vector<float> bad = {1, 2, std::numeric_limits<float>::infinity(), 4};
  builder.Floats("x.l0.moe_in", 2, bad).Floats("x.l0.moe_out", 2, bad);
  SY_ASSERT_OK_AND_ASSIGN(const auto golden, GoldenFile::Open(builder.Write(dir), kShape));

  const auto data = golden->ReadBlock(golden->blocks()[0]);

  ASSERT_THAT(data, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(data.status().message()), HasSubstr("x.l0.moe_in: element 2"));
}

TEST(GoldenTest, PassesOnWhatTheReaderSaysOfADamagedFile) {
  const testing::TempDir dir;
  const std::string bytes = testing::ReadBytes(Whole("p").Write(dir));

  const auto missing = GoldenFile::Open(dir.Join("none.safetensors"), kShape);
  const auto truncated = GoldenFile::Open(
      dir.Write("cut.safetensors", absl::string_view(bytes).substr(0, bytes.size() - 1)), kShape);
  const auto empty = GoldenFile::Open(dir.Write("empty.safetensors", ""), kShape);

  EXPECT_THAT(missing, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(truncated, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  EXPECT_THAT(empty, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
