#include "examples/qwen3_moe/decoder_weights.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/random_model.h"
#include "tests/model/family_checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

TEST(DecoderWeightsTest, TakesItsSizesFromTheConfig) {
  const RandomModel model({.seed = 20, .tied = true, .normalize = false});
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));

  SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));

  EXPECT_EQ(dims.layers, 2U);
  EXPECT_EQ(dims.hidden, 24U);
  EXPECT_EQ(dims.heads, 6U);
  EXPECT_EQ(dims.kv_heads, 3U);
  EXPECT_EQ(dims.head_dim, 10U);
  EXPECT_EQ(dims.vocab, 37U);
  EXPECT_EQ(dims.experts, 5U);
  EXPECT_EQ(dims.top_k, 2U);
  EXPECT_EQ(dims.moe_intermediate, 14U);
  EXPECT_EQ(dims.max_positions, 64U);
  EXPECT_EQ(dims.rms_norm_eps, 1e-5F);
  EXPECT_EQ(dims.rope_theta, 100.0);
  EXPECT_FALSE(dims.normalize_top_k);
  EXPECT_TRUE(dims.tied_embeddings);
}

TEST(DecoderWeightsTest, RefusesModelsThatItWouldComputeWrongly) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(, "mlp_only_layers": [1])", "dense"},
      {R"(, "decoder_sparse_step": 2)", "dense"},
      {R"(, "attention_bias": true)", "attention_bias"},
      {R"(, "use_sliding_window": true)", "use_sliding_window"},
      {R"(, "rope_scaling": {"rope_type": "yarn"})", "rope_type"}};
  for (const auto& [config, text] : cases) {
    const RandomModel model({.seed = 21, .more_config = config});
    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));

    const auto dims = DimsOf(checkpoint->config());

    EXPECT_THAT(dims, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
    EXPECT_THAT(std::string(dims.status().message()), HasSubstr(text));
  }
}

// Any family's experts can be deployed; the error says so and names the family.
TEST(DecoderWeightsTest, RefusesOtherFamiliesAndSaysWhatCanBeDoneWithThem) {
  for (const testing::FamilyCheckpoint& family : testing::FamilyCheckpoints()) {
    SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(family.config.dump()));

    const absl::Status status = DimsOf(config).status();

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
    EXPECT_EQ(MetadataOf(status).at("model_type"), config.model_type);
    for (const char* text : {config.model_type.c_str(), "qwen3_moe", "syctl apply", "client"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }
}

TEST(DecoderWeightsTest, RefusesTensorsThatDoNotFitTheConfig) {
  const auto without = [](RandomModel& model) { model.tensors().erase(model.tensors().begin()); };
  const auto transposed = [](RandomModel& model) {
    std::swap(model.tensors()[0].shape[0], model.tensors()[0].shape[1]);
  };
  const auto half_floats = [](RandomModel& model) { model.tensors()[0].dtype = "F16"; };
  const struct {
    void (*damage)(RandomModel&);
    absl::StatusCode code;
    const char* kind;
  } cases[] = {{without, absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND"},
               {transposed, absl::StatusCode::kDataLoss, "WRONG_SHAPE"},
               {half_floats, absl::StatusCode::kUnimplemented, "WRONG_DTYPE"}};
  for (const auto& c : cases) {
    RandomModel model({.seed = 24});
    c.damage(model);
    model.Rewrite();
    SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(model.dir()));

    SY_ASSERT_OK_AND_ASSIGN(const DecoderDims dims, DimsOf(checkpoint->config()));

    const auto weights = LoadDecoderWeights(*checkpoint, dims);

    EXPECT_THAT(weights, FailsWith(c.code, Reason::kCheckpoint));
    EXPECT_EQ(MetadataOf(weights.status()).at("kind"), c.kind);
    EXPECT_EQ(MetadataOf(weights.status()).at("tensor"), "model.embed_tokens.weight");
  }
}

}  // namespace
}  // namespace switchyard::qwen3_moe
