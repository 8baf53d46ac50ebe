#include "model/expert_weights.h"

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

std::string TextOf(std::span<const std::byte> bytes) { return testing::BytesOf(bytes); }

TEST(ExpertWeightsTest, LoadsTheThreeTensorsOfTheRequestedExpert) {
  const TempDir dir;
  std::vector<WrittenTensor> written = SmallExperts(51);
  WriteSmallCheckpoint(dir, written);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  for (std::int32_t layer = 0; layer < 2; ++layer) {
    for (std::int32_t expert = 0; expert < 3; ++expert) {
      SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                              LoadExpert(*checkpoint, LayerId{layer}, ExpertId{expert}));
      for (const Projection projection : kAllProjections) {
        const std::string name =
            ExpertTensorName(checkpoint->config(), LayerId{layer}, ExpertId{expert}, projection);
        EXPECT_EQ(TextOf(weights.bytes(projection)), testing::TensorNamed(written, name).bytes);
      }
    }
  }
}

TEST(ExpertWeightsTest, NamesAreThoseOfTheFamily) {
  ModelConfig config;
  config.layers = 48;
  config.model_type = "qwen3_moe";
  EXPECT_EQ(ExpertTensorName(config, LayerId{47}, ExpertId{101}, Projection::kDown),
            "model.layers.47.mlp.experts.101.down_proj.weight");
  EXPECT_EQ(ExpertTensorName(config, LayerId{48}, ExpertId{1}, Projection::kGate),
            "mtp.layers.0.mlp.experts.1.gate_proj.weight");

  config.model_type = "deepseek_v3";
  EXPECT_EQ(ExpertTensorName(config, LayerId{48}, ExpertId{1}, Projection::kGate),
            "model.layers.48.mlp.experts.1.gate_proj.weight");

  config.model_type = "mixtral";
  EXPECT_EQ(ExpertTensorName(config, LayerId{2}, ExpertId{7}, Projection::kUp),
            "model.layers.2.block_sparse_moe.experts.7.w3.weight");

  config.model_type = "synthetic";
  EXPECT_EQ(ExpertTensorName(config, LayerId{2}, ExpertId{3}, Projection::kUp),
            "layers.2.experts.3.up_proj");
}

TEST(ExpertWeightsTest, ManifestHoldsTheHashOfEveryTensorInOrder) {
  const TempDir dir;
  std::vector<WrittenTensor> written = SmallExperts(52);
  WriteShardedCheckpoint(dir, written, 5);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(*checkpoint));

  ASSERT_EQ(manifest.tensors.size(), written.size());
  for (const TensorHash& row : manifest.tensors) {
    const std::string name =
        ExpertTensorName(checkpoint->config(), row.layer, row.expert, row.projection);
    EXPECT_EQ(row.sha256, Sha256(testing::TensorNamed(written, name).bytes)) << name;
    EXPECT_EQ(manifest.Find(row.layer, row.expert, row.projection), &row) << "out of order";
  }
}

// A tensor of several pieces: the pieces' borders must not show in the hash.
TEST(ExpertWeightsTest, HashesLargeTensorsAsOne) {
  const TempDir dir;
  SeededRng rng(53);
  constexpr std::int64_t kHidden = 1'000;
  constexpr std::int64_t kIntermediate = 700;
  std::vector<WrittenTensor> written;
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    std::string bytes(kHidden * kIntermediate * 2, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Next());
    const bool down = absl::string_view(projection) == "down_proj";
    written.push_back({absl::StrCat("model.layers.0.mlp.experts.0.", projection, ".weight"), "BF16",
                       down ? std::vector<std::int64_t>{kHidden, kIntermediate}
                            : std::vector<std::int64_t>{kIntermediate, kHidden},
                       bytes});
  }
  dir.Write("model.safetensors", testing::SafetensorsBytes(written));
  dir.Write("config.json",
            R"({"model_type": "qwen3_moe", "hidden_size": 1000, "num_hidden_layers": 1,
                "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 8,
                "max_position_embeddings": 16, "num_experts": 1, "num_experts_per_tok": 1,
                "moe_intermediate_size": 700, "rope_theta": 10000.0})");
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  int calls = 0;
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest,
                          BuildManifest(*checkpoint, [&calls](std::uint64_t, std::uint64_t total) {
                            EXPECT_EQ(total, 3U * kHidden * kIntermediate * 2U);
                            ++calls;
                            return true;
                          }));

  EXPECT_EQ(calls, 6);  // 1.4 MB in pieces of 1 MiB, three times.
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(manifest.tensors[i].sha256, Sha256(written[i].bytes));
  }
}

TEST(ExpertWeightsTest, SeveralThreadsHashAsOne) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(54));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest one, BuildManifest(*checkpoint));
  std::uint64_t last = 0;
  std::uint64_t of = 0;
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    of = total;
    return true;
  };

  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest several, BuildManifest(*checkpoint, progress, 4));

  EXPECT_EQ(several, one);
  EXPECT_EQ(last, of);
}

TEST(ExpertWeightsTest, AStopEndsAllThreads) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(54));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  int calls = 0;

  const auto manifest = BuildManifest(
      *checkpoint, [&](std::uint64_t, std::uint64_t) { return ++calls < 3; }, 4);

  EXPECT_EQ(manifest.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST(ExpertWeightsTest, HashingStopsOnRequest) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(54));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  int calls = 0;

  const auto manifest =
      BuildManifest(*checkpoint, [&calls](std::uint64_t, std::uint64_t) { return ++calls < 3; });

  EXPECT_EQ(manifest.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST(ExpertWeightsTest, ManifestNamesAMissingTensor) {
  const TempDir dir;
  std::vector<WrittenTensor> written = SmallExperts(55);
  written.erase(written.begin() + 10);
  WriteSmallCheckpoint(dir, written);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  const absl::Status status = BuildManifest(*checkpoint).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_EQ(MetadataOf(status).at("tensor"), "model.layers.1.mlp.experts.0.up_proj.weight");
}

TEST(ExpertWeightsTest, VerifyNoticesOneBitInAnyTensor) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(56));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(*checkpoint));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights good,
                          LoadExpert(*checkpoint, LayerId{1}, ExpertId{2}));
  const auto verify = [&](const ExpertWeights& weights) {
    return VerifyExpert(checkpoint->config(), LayerId{1}, ExpertId{2}, weights, manifest.tensors);
  };
  SY_EXPECT_OK(verify(good));

  for (const Projection projection : kAllProjections) {
    for (std::size_t at = 0; at < 24; ++at) {
      ExpertWeights bad = good;
      bad.of(projection)[at] ^= static_cast<Bf16>(1U << (at % 16));
      const absl::Status status = verify(bad);
      ASSERT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
      const auto metadata = MetadataOf(status);
      EXPECT_EQ(metadata.at("tensor"),
                ExpertTensorName(checkpoint->config(), LayerId{1}, ExpertId{2}, projection));
      EXPECT_EQ(metadata.at("found"), Sha256(bad.bytes(projection)).ToHex());
      EXPECT_EQ(metadata.at("expected"), Sha256(good.bytes(projection)).ToHex());
      EXPECT_NE(status.message().find(metadata.at("found")), absl::string_view::npos);
      EXPECT_NE(status.message().find(metadata.at("expected")), absl::string_view::npos);
    }
  }
}

TEST(ExpertWeightsTest, VerifyRefusesAnotherExpertsWeightsAndMissingRows) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(57));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(*checkpoint));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                          LoadExpert(*checkpoint, LayerId{0}, ExpertId{1}));
  const auto fails = FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash);

  EXPECT_THAT(
      VerifyExpert(checkpoint->config(), LayerId{0}, ExpertId{2}, weights, manifest.tensors),
      fails);
  EXPECT_THAT(
      VerifyExpert(checkpoint->config(), LayerId{1}, ExpertId{1}, weights, manifest.tensors),
      fails);
  EXPECT_THAT(VerifyExpert(checkpoint->config(), LayerId{0}, ExpertId{1}, weights, {}), fails);
}

TEST(ExpertWeightsTest, RefusesIdsThatTheModelDoesNotHave) {
  const TempDir dir;
  WriteSmallCheckpoint(dir, SmallExperts(58));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));

  EXPECT_THAT(LoadExpert(*checkpoint, LayerId{2}, ExpertId{0}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
  EXPECT_THAT(LoadExpert(*checkpoint, LayerId{0}, ExpertId{3}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
  EXPECT_THAT(LoadExpert(*checkpoint, LayerId{0}, ExpertId{-1}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
}

}  // namespace
}  // namespace switchyard
