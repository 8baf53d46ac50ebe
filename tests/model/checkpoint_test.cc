#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/model/checkpoint_folder.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::SmallExperts;
using testing::TempDir;
using testing::WriteShardedCheckpoint;
using testing::WriteSmallCheckpoint;
using testing::WrittenTensor;

std::string ReadText(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor == nullptr) return "no such tensor";
  std::string out(tensor->bytes, '?');
  const absl::Status status = checkpoint.Read(name, std::as_writable_bytes(std::span(out)));
  return status.ok() ? out : status.ToString();
}

void ExpectHolds(const Checkpoint& checkpoint, const std::vector<WrittenTensor>& written) {
  std::vector<std::string> names;
  for (const WrittenTensor& one : written) {
    names.push_back(one.name);
    EXPECT_EQ(ReadText(checkpoint, one.name), one.bytes) << one.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(checkpoint.names(), names);
}

TEST(CheckpointTest, ReadsASingleFile) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = SmallExperts(41);
  WriteSmallCheckpoint(dir, written);

  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  ExpectHolds(*checkpoint, written);
  EXPECT_EQ(checkpoint->dir(), dir.path());
  EXPECT_EQ(checkpoint->config().model_type, "qwen3_moe");
  EXPECT_EQ(checkpoint->FileOf(written[0].name), dir.Join("model.safetensors"));
  EXPECT_EQ(checkpoint->FileOf("nameless"), "");
  EXPECT_EQ(checkpoint->Find("nameless"), nullptr);
}

TEST(CheckpointTest, ReadsShardsHoweverTheTensorsAreSplit) {
  const std::vector<WrittenTensor> written = SmallExperts(42);
  for (const std::size_t split : {std::size_t{1}, std::size_t{9}, written.size() - 1}) {
    const TempDir dir;
    WriteShardedCheckpoint(dir, written, split);

    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

    ExpectHolds(*checkpoint, written);
    EXPECT_EQ(checkpoint->FileOf(written.front().name), dir.Join("a.safetensors"));
    EXPECT_EQ(checkpoint->FileOf(written.back().name), dir.Join("b.safetensors"));
  }
}

TEST(CheckpointTest, ReadsRangesOfShards) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = SmallExperts(43);
  WriteShardedCheckpoint(dir, written, 5);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  std::string out(7, '?');
  SY_ASSERT_OK(checkpoint->ReadRange(written[6].name, 11, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, written[6].bytes.substr(11, 7));

  EXPECT_THAT(checkpoint->ReadRange("nameless", 0, std::as_writable_bytes(std::span(out))),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

TEST(CheckpointTest, TheSingleFileWinsOverAnIndex) {
  const TempDir dir;
  WriteShardedCheckpoint(dir, SmallExperts(44), 5);
  const std::vector<WrittenTensor> written = SmallExperts(45);
  WriteSmallCheckpoint(dir, written);

  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  ExpectHolds(*checkpoint, written);
}

TEST(CheckpointTest, WeightsOfAnotherFormatBesideSafetensorsDoNotMatter) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = SmallExperts(46);
  WriteSmallCheckpoint(dir, written);
  dir.Write("pytorch_model.bin", "x");

  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  ExpectHolds(*checkpoint, written);
}

TEST(CheckpointTest, ConfigErrorsNameTheFileAndTheKey) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(47));
  dir.Write("config.json", R"({"model_type": "qwen3_moe"})");

  const absl::Status status = Checkpoint::Open(dir.path()).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(status).at("file"), dir.Join("config.json"));
  EXPECT_EQ(MetadataOf(status).at("key"), "hidden_size");
}

TEST(CheckpointTest, OpenFilesOutliveTheFolder) {
  const TempDir dir;
  const std::vector<WrittenTensor> written = SmallExperts(48);
  WriteShardedCheckpoint(dir, written, 5);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  std::filesystem::remove_all(dir.path());

  ExpectHolds(*checkpoint, written);
}

}  // namespace
}  // namespace switchyard
