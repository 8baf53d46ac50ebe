#include "model/quant/config/amax_file.h"

#include <filesystem>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kInvalidArgument;

AmaxTable RandomTable(std::uint64_t seed) {
  SeededRng rng(seed);
  AmaxTable table;
  for (const int layer : {0, 3, 17}) {
    LayerAmax row{layer, {}};
    for (int expert = 0; expert < 5; ++expert) {
      row.experts.push_back(
          {static_cast<float>(rng.Uniform() * 40), static_cast<float>(rng.Uniform() * 1e-3)});
    }
    table.layers.push_back(row);
  }
  return table;
}

TEST(AmaxFileTest, GivesBackEveryBitThatWasWritten) {
  AmaxTable table = RandomTable(7);
  table.layers[0].experts[0] = {0, std::numeric_limits<float>::denorm_min()};
  table.layers[2].experts[4] = {std::numeric_limits<float>::max(), 0.9F};

  SY_ASSERT_OK_AND_ASSIGN(const std::string text, AmaxJson(table));
  SY_ASSERT_OK_AND_ASSIGN(const AmaxTable read, ParseAmax(text));

  EXPECT_EQ(read, table);
}

TEST(AmaxFileTest, ReadsTheDocumentedFormInAnyOrderOfLayers) {
  SY_ASSERT_OK_AND_ASSIGN(const AmaxTable table, ParseAmax(R"({"switchyard_amax": 1, "layers": [
        {"layer": 4, "experts": [{"gate_up": 2, "down": 0}]},
        {"layer": 1, "experts": [{"gate_up": 3.25, "down": 0.5}]}]})"));

  ASSERT_NE(table.Find(1), nullptr);
  EXPECT_EQ(table.Find(1)->experts[0], (ExpertAmax{3.25F, 0.5F}));
  EXPECT_EQ(table.Find(4)->experts[0], (ExpertAmax{2, 0}));
  EXPECT_EQ(table.Find(2), nullptr);
}

TEST(AmaxFileTest, RefusesWhatItDoesNotKnowAndSaysWhere) {
  struct Case {
    const char* text;
    const char* says;
  };
  const Case cases[] = {
      {"[1", "JSON"},
      {R"({"layers": []})", "switchyard_amax"},
      {R"({"switchyard_amax": 2, "layers": []})", "version 1"},
      {R"({"switchyard_amax": 1, "layers": [], "more": 1})", "more"},
      {R"({"switchyard_amax": 1, "layers": {}})", "layers"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": -1, "experts": []}]})", "layers[0].layer"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": 0, "experts": []}]})", "no experts"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": 0, "experts": [{"down": 1}]}]})",
       "layers[0].experts[0].gate_up"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": 0, "experts": [
          {"gate_up": -1, "down": 1}]}]})",
       "experts[0].gate_up"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": 0, "experts": [
          {"gate_up": 1e39, "down": 1}]}]})",
       "3.4e38"},
      {R"({"switchyard_amax": 1, "layers": [{"layer": 0, "experts": [
          {"gate_up": "1", "down": 1}]}]})",
       "must be a number"},
      {R"({"switchyard_amax": 1, "layers": [
          {"layer": 0, "experts": [{"gate_up": 1, "down": 1}]},
          {"layer": 0, "experts": [{"gate_up": 1, "down": 1}]}]})",
       "twice"},
  };
  for (const Case& one : cases) {
    const auto table = ParseAmax(one.text);
    EXPECT_THAT(table, FailsWith(kRefused, Reason::kBadConfig)) << one.text;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(one.says)) << one.text;
  }
}

TEST(AmaxFileTest, DoesNotWriteWhatItWouldNotRead) {
  AmaxTable table = RandomTable(8);
  table.layers[1].experts[2].down = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(AmaxJson(table), FailsWith(kRefused, Reason::kBadConfig));
  table = RandomTable(8);
  std::swap(table.layers[0], table.layers[1]);
  EXPECT_THAT(AmaxJson(table), FailsWith(kRefused, Reason::kBadConfig));
}

TEST(AmaxFileTest, ReplacesAFileAsAWhole) {
  const testing::TempDir dir;
  const std::string path = dir.Write("amax.json", "old");

  SY_ASSERT_OK(WriteAmaxFile(path, RandomTable(9)));

  SY_ASSERT_OK_AND_ASSIGN(const AmaxTable read, ReadAmaxFile(path));
  EXPECT_EQ(read, RandomTable(9));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

// A path that cannot be written is found before the work is done.
TEST(AmaxFileTest, AWriterIsOpenBeforeThereIsATable) {
  const testing::TempDir dir;
  const std::string path = dir.Write("amax.json", "old");
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto given_up, AmaxFileWriter::Open(path));
    AmaxTable wrong = RandomTable(10);
    wrong.layers[0].experts[0].down = -1;
    EXPECT_THAT(given_up->Commit(wrong), FailsWith(kRefused, Reason::kBadConfig));
  }
  EXPECT_EQ(testing::ReadBytes(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));

  SY_ASSERT_OK_AND_ASSIGN(const auto writer, AmaxFileWriter::Open(path));
  SY_ASSERT_OK(writer->Commit(RandomTable(11)));
  SY_ASSERT_OK_AND_ASSIGN(const AmaxTable read, ReadAmaxFile(path));
  EXPECT_EQ(read, RandomTable(11));

  EXPECT_THAT(AmaxFileWriter::Open(dir.Join("no/amax.json")),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(AmaxFileWriter::Open(dir.path()),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
}

TEST(AmaxFileTest, ErrorsNameTheFile) {
  const testing::TempDir dir;
  const std::string bad = dir.Write("bad.json", "{}");

  EXPECT_EQ(MetadataOf(ReadAmaxFile(bad).status())["file"], bad);
  EXPECT_THAT(ReadAmaxFile(dir.Join("none.json")),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(WriteAmaxFile(dir.Join("no/folder.json"), RandomTable(1)),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
