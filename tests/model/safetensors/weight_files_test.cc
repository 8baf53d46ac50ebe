#include "model/safetensors/weight_files.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "model/safetensors/checkpoint_tensors.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::TempDir;

// Names that msModelSlim 26 writes.
TEST(WeightFilesTest, FilesMayHaveOtherNames) {
  const TempDir sharded;
  testing::WriteIndexed(sharded, "quant_model_weights.safetensors.index.json",
                        "quant_model_weights-00001-of-00001.safetensors", "");
  const TempDir single;
  single.Write("quant_model_weights.safetensors",
               testing::SafetensorsBytes({{"m.weight_packed", "U8", {1}, "z"}}));
  single.Write("golden.safetensors", testing::SafetensorsBytes({{"x", "U8", {1}, "z"}}));

  for (const TempDir* dir : {&sharded, &single}) {
    SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir->path()));
    EXPECT_EQ(tensors.names().size(), 1U);
  }
}

TEST(WeightFilesTest, TheUsualNamesWinOverOthers) {
  const TempDir dir;
  dir.Write("model.safetensors", testing::SafetensorsBytes({{"c", "U8", {1}, "x"}}));
  testing::WriteIndexed(dir, "other.safetensors.index.json", "other.safetensors", "");

  SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors tensors, CheckpointTensors::Open(dir.path()));

  EXPECT_EQ(tensors.FileOf("c"), dir.Join("model.safetensors"));
}

TEST(WeightFilesTest, TwoCandidatesAreAnErrorThatNamesThem) {
  const TempDir indexes;
  testing::WriteIndexed(indexes, "a.safetensors.index.json", "a.safetensors", "");
  testing::WriteIndexed(indexes, "b.safetensors.index.json", "b.safetensors", "");
  const TempDir files;
  for (const char* name : {"1", "2", "3", "4", "5"}) {
    files.Write(absl::StrCat(name, ".safetensors"),
                testing::SafetensorsBytes({{"m.weight", "U8", {1}, "z"}}));
  }

  const absl::Status two_indexes = CheckpointTensors::Open(indexes.path()).status();
  const absl::Status five_files = CheckpointTensors::Open(files.path()).status();

  EXPECT_THAT(two_indexes, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kCheckpoint));
  EXPECT_THAT(std::string(two_indexes.message()),
              HasSubstr("2 indexes ('a.safetensors.index.json', 'b.safetensors.index.json')"));
  EXPECT_THAT(
      std::string(five_files.message()),
      HasSubstr(
          "5 safetensors files with weights ('1.safetensors', '2.safetensors', '3.safetensors', "
          "'4.safetensors', ...)"));
}

TEST(WeightFilesTest, AFileWithoutWeightsIsNoModel) {
  const TempDir dir;
  dir.Write("golden.safetensors", testing::SafetensorsBytes({{"c", "U8", {1}, "z"}}));

  const absl::Status none = CheckpointTensors::Open(dir.path()).status();

  EXPECT_THAT(none, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(std::string(none.message()), HasSubstr("looking for safetensors files with weights"));
}

}  // namespace
}  // namespace switchyard
