#include "model/safetensors/checkpoint_tensors.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "model/quant/config/quant_files.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::TempDir;

void WriteTwo(const TempDir& dir) {
  dir.Write("model.safetensors",
            testing::SafetensorsBytes({{"a.weight", "U8", {2}, "xy"}, {"c", "U8", {1}, "z"}}));
}

TEST(CheckpointTensorsTest, NeedsNoConfigAndSurvivesAMove) {
  const TempDir dir;
  WriteTwo(dir);
  SY_ASSERT_OK_AND_ASSIGN(CheckpointTensors opened, CheckpointTensors::Open(dir.path()));

  const CheckpointTensors tensors = std::move(opened);

  std::string bytes(2, '\0');
  SY_EXPECT_OK(tensors.Read("a.weight", std::as_writable_bytes(std::span(bytes))));
  EXPECT_EQ(bytes, "xy");
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"a.weight", "c"}));
  EXPECT_EQ(tensors.FileOf("c"), dir.Join("model.safetensors"));
}

TEST(CheckpointTensorsTest, PrefixesOfNames) {
  const TempDir dir;
  WriteTwo(dir);
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir.path()));

  for (const char* prefix : {"", "a", "a.", "a.weight", "c"}) {
    EXPECT_TRUE(tensors.HasPrefix(prefix)) << prefix;
  }
  for (const char* prefix : {"b", "a.weight.", "d", "a.x", "B"}) {
    EXPECT_FALSE(tensors.HasPrefix(prefix)) << prefix;
  }
}

TEST(CheckpointTensorsTest, ReadsTextBesideTheTensorsAndNoLinks) {
  const TempDir dir;
  WriteTwo(dir);
  dir.Write("config.json", "{}");
  std::filesystem::create_symlink(dir.Join("config.json"), dir.Join("link.json"));
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir.path()));

  EXPECT_EQ(tensors.ReadText("config.json", 2).value(), "{}");
  EXPECT_EQ(tensors.ReadText("absent.json", 2).value(), std::nullopt);
  for (const auto& refused :
       {tensors.ReadText("link.json", 2), tensors.ReadText("config.json", 1)}) {
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
  }
}

TEST(CheckpointTensorsTest, AWrongOrMissingTotalIsNoReasonToRefuse) {
  for (const auto& [total, warnings] :
       {std::pair{"\"total_size\": 1", 0U}, std::pair{"\"total_size\": 688586727753", 1U},
        std::pair{"", 0U}}) {
    const TempDir dir;
    testing::WriteIndexed(dir, "model.safetensors.index.json", "a.safetensors", total);

    SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir.path()));

    EXPECT_EQ(tensors.warnings().size(), warnings) << total;
    if (warnings == 0) continue;
    EXPECT_EQ(tensors.warnings()[0],
              absl::StrCat(dir.Join("model.safetensors.index.json"),
                           ": metadata.total_size is 688586727753, but the shards' tensors have 1 "
                           "bytes. The tensors agree with the index."));
  }
}

TEST(QuantFilesTest, ReadsTheFilesThatAreThere) {
  const TempDir dir;
  WriteTwo(dir);
  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir.path()));
  EXPECT_THAT(LoadQuantConfig(tensors),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));

  dir.Write("config.json", "{}");
  EXPECT_EQ(LoadQuantConfig(tensors)->family, "none");
  dir.Write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_EQ(LoadQuantConfig(tensors)->family, "modelopt");
  dir.Write("quant_model_description.json", R"({"m.weight": "W8A8_DYNAMIC"})");
  EXPECT_EQ(LoadQuantConfig(tensors)->family, "modelslim");
  dir.Write("quant_model_description.json", "[");
  const absl::Status status = LoadQuantConfig(tensors).status();
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(status)["dir"], dir.path());
}

}  // namespace
}  // namespace switchyard
