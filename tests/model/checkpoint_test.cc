#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "model/expert_weights.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/model/family_checkpoints.h"
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

// An MTP layer keeps its BF16 experts beside quantized ones, under names of its own.
TEST(CheckpointTest, DraftLayersHaveExpertsOfTheirOwn) {
  const TempDir dir;
  std::vector<WrittenTensor> written = SmallExperts(48);
  for (WrittenTensor tensor : SmallExperts(49)) {
    if (!absl::StrContains(tensor.name, "layers.0.")) continue;
    tensor.name = absl::StrReplaceAll(tensor.name, {{"model.layers.0", "mtp.layers.0"}});
    written.push_back(tensor);
  }
  WriteSmallCheckpoint(dir, written);
  dir.Write(
      "config.json",
      absl::StrReplaceAll(testing::SmallConfig(),
                          {{"\"head_dim\": 2", "\"head_dim\": 2, \"mtp_num_hidden_layers\": 1"}}));

  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  EXPECT_EQ(MoeLayersOf(checkpoint->config()), (std::vector{LayerId{0}, LayerId{1}, LayerId{2}}));
  ASSERT_NE(checkpoint->FindExperts(LayerId{2}), nullptr);
  EXPECT_TRUE(checkpoint->FindExperts(LayerId{2})->modules().draft);
  EXPECT_EQ(checkpoint->FindExperts(LayerId{2})->modules().container, "mtp.layers.0.mlp.experts");
  EXPECT_EQ(checkpoint->FindExperts(LayerId{3}), nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights draft,
                          LoadExpert(*checkpoint, LayerId{2}, ExpertId{1}));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights base,
                          LoadExpert(*checkpoint, LayerId{0}, ExpertId{1}));
  EXPECT_NE(draft, base);
}

// Each layer's experts are the family's tensors, byte for byte, drafts among them.
TEST(CheckpointTest, OpensTheCheckpointOfEveryFamily) {
  for (const testing::FamilyCheckpoint& family : testing::FamilyCheckpoints()) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    WriteFamily(family, dir);

    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

    EXPECT_EQ(ShapeOf(checkpoint->config()), family.shape);
    EXPECT_EQ(checkpoint->config().draft_layers, family.drafts);
    std::vector<LayerId> layers;
    for (const testing::FamilyLayer& at : family.moe_layers) {
      layers.push_back(at.layer);
      SY_ASSERT_OK_AND_ASSIGN(const LayerExperts* found, checkpoint->ExpertsOf(at.layer));
      EXPECT_EQ(found->modules().container, at.container);
      EXPECT_EQ(found->modules().draft, at.layer.value >= family.layers);
      SY_EXPECT_OK(found->Check());
      for (std::int32_t e = 0; e < family.shape.experts; ++e) {
        SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                                LoadExpert(*checkpoint, at.layer, ExpertId{e}));
        const testing::RandomExpert wanted = family.Expert(at.layer, e);
        EXPECT_EQ(weights.gate, wanted.gate) << at.layer.value << " " << e;
        EXPECT_EQ(weights.up, wanted.up) << at.layer.value << " " << e;
        EXPECT_EQ(weights.down, wanted.down) << at.layer.value << " " << e;
      }
    }
    EXPECT_EQ(MoeLayersOf(checkpoint->config()), layers);
    SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(*checkpoint));
    EXPECT_EQ(manifest.tensors.size(),
              layers.size() * static_cast<std::size_t>(family.shape.experts) * 3);
  }
}

TEST(CheckpointTest, DenseLayersOfADeployedFamilyHaveNoExperts) {
  const TempDir dir;
  WriteFamily(testing::DeepseekFamily(), dir);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  for (const LayerId dense : {LayerId{0}, LayerId{1}, LayerId{5}}) {
    EXPECT_EQ(checkpoint->FindExperts(dense), nullptr);
    EXPECT_THAT(LoadExpert(*checkpoint, dense, ExpertId{0}),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
  }
}

TEST(CheckpointTest, DraftLayersThatAreNotThereAreLeftOut) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(50));
  dir.Write(
      "config.json",
      absl::StrReplaceAll(testing::SmallConfig(),
                          {{"\"head_dim\": 2", "\"head_dim\": 2, \"mtp_num_hidden_layers\": 1"}}));

  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  EXPECT_EQ(checkpoint->config().draft_layers, 0);
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
