#include "model/experts/moe_outline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "model/experts/expert_names.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Deepseek() {
  return {{"model_type", "deepseek_v3"},  {"num_hidden_layers", 6},
          {"hidden_size", 7168},          {"moe_intermediate_size", 2048},
          {"intermediate_size", 18432},   {"n_routed_experts", 256},
          {"num_experts_per_tok", 8},     {"first_k_dense_replace", 3},
          {"num_nextn_predict_layers", 1}};
}

Json Qwen() {
  return {{"model_type", "qwen3_moe"},    {"num_hidden_layers", 6}, {"hidden_size", 2048},
          {"moe_intermediate_size", 768}, {"intermediate_size", 9}, {"num_experts", 128},
          {"num_experts_per_tok", 8}};
}

std::vector<std::int32_t> Layers(const Json& config) {
  const auto outline = ParseMoeOutline(config.dump());
  SY_EXPECT_OK(outline.status());
  std::vector<std::int32_t> layers;
  if (!outline.ok()) return layers;
  for (const LayerId layer : outline->moe_layers) layers.push_back(layer.value);
  return layers;
}

TEST(MoeOutlineTest, DraftsOfDeepseekFollowTheOtherLayers) {
  SY_ASSERT_OK_AND_ASSIGN(const MoeOutline outline, ParseMoeOutline(Deepseek().dump()));

  EXPECT_EQ(outline.model_type, "deepseek_v3");
  EXPECT_EQ(outline.shape, (MoeShape{7168, 2048, 256, 8}));
  EXPECT_EQ(outline.layers, 6);
  EXPECT_EQ(outline.drafts, 1);
  EXPECT_EQ(outline.first_draft, 6);
  EXPECT_THAT(Layers(Deepseek()), ElementsAre(3, 4, 5));
}

TEST(MoeOutlineTest, KimisKeysStandInItsTextConfig) {
  Json text = Deepseek();
  text["model_type"] = "kimi_k2";
  text["num_nextn_predict_layers"] = 0;
  const Json kimi = {{"model_type", "kimi_k25"}, {"text_config", text}, {"hidden_size", 5}};
  SY_ASSERT_OK_AND_ASSIGN(const MoeOutline outline, ParseMoeOutline(kimi.dump()));

  EXPECT_EQ(outline.model_type, "kimi_k25");
  EXPECT_EQ(outline.shape.hidden, 7168);
  EXPECT_EQ(outline.drafts, 0);
  EXPECT_THAT(Layers(kimi), ElementsAre(3, 4, 5));
}

TEST(MoeOutlineTest, DraftsOfQwenHaveAListOfTheirOwn) {
  Json text = Qwen();
  text["mtp_num_hidden_layers"] = 1;
  const Json qwen = {{"model_type", "qwen3_5_moe"}, {"text_config", text}};
  SY_ASSERT_OK_AND_ASSIGN(const MoeOutline outline, ParseMoeOutline(qwen.dump()));

  EXPECT_EQ(outline.drafts, 1);
  EXPECT_EQ(outline.first_draft, 0);
  EXPECT_EQ(outline.shape, (MoeShape{2048, 768, 128, 8}));
}

TEST(MoeOutlineTest, DraftsOfQwenAreCountedUnderEitherKey) {
  Json qwen = Qwen();
  qwen["num_nextn_predict_layers"] = 2;
  EXPECT_EQ(ParseMoeOutline(qwen.dump())->drafts, 2);
  qwen["mtp_num_hidden_layers"] = 2;
  EXPECT_EQ(ParseMoeOutline(qwen.dump())->drafts, 2);
  qwen["mtp_num_hidden_layers"] = 1;
  const absl::Status status = ParseMoeOutline(qwen.dump()).status();
  EXPECT_THAT(status, FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(status).at("key"), "num_nextn_predict_layers");
}

TEST(MoeOutlineTest, TellsTheActivation) {
  Json deepseek = Deepseek();
  EXPECT_EQ(ParseMoeOutline(deepseek.dump())->activation, "silu");
  deepseek["hidden_act"] = "gelu";
  EXPECT_EQ(ParseMoeOutline(deepseek.dump())->activation, "gelu");
  EXPECT_EQ(ParseMoeOutline(deepseek.dump())->activation_changed_by, "");
  deepseek["swiglu_limit"] = 7.0;
  EXPECT_EQ(ParseMoeOutline(deepseek.dump())->activation_changed_by, "swiglu_limit");
}

TEST(MoeOutlineTest, SparseStepsAndDenseLayersAreLeftOut) {
  Json qwen = Qwen();
  EXPECT_THAT(Layers(qwen), ElementsAre(0, 1, 2, 3, 4, 5));
  qwen["decoder_sparse_step"] = 2;
  EXPECT_THAT(Layers(qwen), ElementsAre(1, 3, 5));
  qwen["mlp_only_layers"] = {3};
  EXPECT_THAT(Layers(qwen), ElementsAre(1, 5));
  Json deepseek = Deepseek();
  deepseek["moe_layer_freq"] = 2;
  EXPECT_THAT(Layers(deepseek), ElementsAre(4));
}

TEST(MoeOutlineTest, MixtralHasExpertsInEveryLayer) {
  const Json mixtral = {{"model_type", "mixtral"},
                        {"num_hidden_layers", 2},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_local_experts", 8}};
  SY_ASSERT_OK_AND_ASSIGN(const MoeOutline outline, ParseMoeOutline(mixtral.dump()));

  EXPECT_EQ(outline.shape, (MoeShape{4096, 14336, 8, 0}));  // top-k is not said
  EXPECT_THAT(Layers(mixtral), ElementsAre(0, 1));
}

TEST(MoeOutlineTest, ExpertsMayBeCountedUnderTheirNewKey) {
  Json qwen = Qwen();
  qwen["num_local_experts"] = 128;
  EXPECT_EQ(ParseMoeOutline(qwen.dump())->shape.experts, 128);
  qwen.erase("num_experts");
  EXPECT_EQ(ParseMoeOutline(qwen.dump())->shape.experts, 128);
}

TEST(MoeOutlineTest, KnowsEveryFamilyWhoseNamesAreKnown) {
  for (const ExpertNameMap& map : ExpertNameMaps()) {
    for (const char* type : map.model_types) {
      if (type == nullptr) continue;
      const auto outline = ParseMoeOutline(absl::StrCat("{\"model_type\": \"", type, "\"}"));
      EXPECT_THAT(outline, FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig)) << type;
    }
  }
}

TEST(MoeOutlineTest, RefusesWhatItDoesNotKnow) {
  const absl::Status status =
      ParseMoeOutline(R"({"model_type": "llama", "hidden_size": 1})").status();

  EXPECT_THAT(status, FailsWith(StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_EQ(MetadataOf(status).at("key"), "model_type");
  EXPECT_THAT(std::string(status.message()), HasSubstr("'llama'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("mixtral"));
}

TEST(MoeOutlineTest, RefusesBadFilesAndNamesTheKey) {
  const auto with = [](const char* key, const Json& value) {
    Json config = Deepseek();
    config[key] = value;
    return config.dump();
  };
  const std::vector<std::pair<std::string, std::string>> bad{
      {"", "config.json"},
      {"[]", "config.json"},
      {"{\"model_type\": 3}", "model_type"},
      {"{}", "model_type"},
      {with("hidden_size", nullptr), "hidden_size"},
      {with("hidden_size", "7168"), "hidden_size"},
      {with("num_hidden_layers", 5000), "num_hidden_layers"},
      {with("n_routed_experts", 0), "n_routed_experts"},
      {with("num_local_experts", 255), "num_local_experts"},
      {with("num_experts_per_tok", 257), "num_experts_per_tok"},
      {with("moe_layer_freq", 0), "moe_layer_freq"},
      {with("first_k_dense_replace", 6), "num_hidden_layers"},
      {with("num_nextn_predict_layers", -1), "num_nextn_predict_layers"}};
  for (const auto& [text, key] : bad) {
    const absl::Status status = ParseMoeOutline(text).status();
    EXPECT_THAT(status, FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    EXPECT_EQ(MetadataOf(status).at("key"), key) << text;
  }
}

}  // namespace
}  // namespace switchyard
