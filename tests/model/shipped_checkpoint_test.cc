// The reader on files that another writer made: the shipped checkpoint and its goldens.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"

#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr char kDir[] = SY_SHIPPED_MODEL;

TEST(ShippedCheckpointTest, ReadsConfigAndEveryTensor) {
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(kDir));

  EXPECT_EQ(checkpoint->names().size(), 230U);
  EXPECT_EQ(ShapeOf(checkpoint->config()),
            (MoeShape{.hidden = 256, .intermediate = 128, .experts = 16, .top_k = 4}));
  EXPECT_EQ(MoeLayersOf(checkpoint->config()).size(), 4U);
  const TensorInfo* embedding = checkpoint->Find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, TensorDtype::kBf16);
  EXPECT_EQ(embedding->shape, (std::vector<std::int64_t>{256, 256}));
}

TEST(ShippedCheckpointTest, EveryExpertPassesTheManifestOfItsCheckpoint) {
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(kDir));
  std::uint64_t last = 0;
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest,
                          BuildManifest(*checkpoint, [&](std::uint64_t done, std::uint64_t total) {
                            EXPECT_GT(done, last);
                            EXPECT_LE(done, total);
                            last = done;
                            return true;
                          }));

  EXPECT_EQ(manifest.tensors.size(), 4U * 16U * 3U);
  EXPECT_EQ(last, 4U * 16U * 3U * 256U * 128U * 2U);
  for (const LayerId layer : MoeLayersOf(checkpoint->config())) {
    for (std::int32_t expert = 0; expert < 16; ++expert) {
      SY_ASSERT_OK_AND_ASSIGN(ExpertWeights weights,
                              LoadExpert(*checkpoint, layer, ExpertId{expert}));
      SY_EXPECT_OK(
          VerifyExpert(checkpoint->config(), layer, ExpertId{expert}, weights, manifest.tensors));
      weights.down[weights.down.size() - 1] ^= 1U;
      EXPECT_THAT(
          VerifyExpert(checkpoint->config(), layer, ExpertId{expert}, weights, manifest.tensors),
          FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
    }
  }
}

TEST(ShippedCheckpointTest, ReadsTheGoldensOfAnotherWriter) {
  SY_ASSERT_OK_AND_ASSIGN(const auto file,
                          SafetensorsFile::Open(std::string(kDir) + "/golden.safetensors"));

  const TensorInfo* ids = file->Find("p0.ids");
  ASSERT_NE(ids, nullptr);
  std::vector<std::int32_t> values(10, -1);
  SY_ASSERT_OK(file->Read(*ids, std::as_writable_bytes(std::span(values))));
  const std::string prompt = "SQLite is ";
  EXPECT_TRUE(std::equal(values.begin(), values.end(), prompt.begin(), prompt.end()));
  const TensorInfo* rows = file->Find("val.l2.moe_out");
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->shape, (std::vector<std::int64_t>{512, 256}));
  std::vector<float> out(512U * 256U, NAN);
  SY_ASSERT_OK(file->Read(*rows, std::as_writable_bytes(std::span(out))));
  EXPECT_TRUE(
      std::all_of(out.begin(), out.end(), [](float value) { return std::isfinite(value); }));
  EXPECT_EQ(file->metadata().size(), 2U);
}

}  // namespace
}  // namespace switchyard
