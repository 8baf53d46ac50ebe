#include "model/model_config.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "model/decoder_family.h"
#include "tests/model/family_checkpoints.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using Json = nlohmann::json;

// The fields that matter of Qwen3-30B-A3B's config.json, as transformers 4 wrote it.
Json OldSpelling() {
  return Json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
    "vocab_size": 151936})");
}

// The same as transformers 5 writes it.
Json NewSpelling() {
  Json config = OldSpelling();
  config.erase("num_experts");
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config.erase("torch_dtype");
  config["num_local_experts"] = 128;
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  config["dtype"] = "bfloat16";
  return config;
}

// `config` with `key` (dots reach into objects) set to `value`.
Json With(Json config, const std::string& key, const Json& value) {
  config[Json::json_pointer("/" + absl::StrReplaceAll(key, {{".", "/"}}))] = value;
  return config;
}
Json Without(Json config, const std::string& key) {
  config.erase(key);
  return config;
}

TEST(ModelConfigTest, BothSpellingsMeanTheSame) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig before, ParseModelConfig(OldSpelling().dump()));
  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig since, ParseModelConfig(NewSpelling().dump()));

  EXPECT_EQ(before, since);
  ModelConfig wanted;
  wanted.model_type = "qwen3_moe";
  wanted.architecture = "Qwen3MoeForCausalLM";
  wanted.hidden_size = 2048;
  wanted.layers = 48;
  wanted.experts = 128;
  wanted.top_k = 8;
  wanted.moe_intermediate = 768;
  wanted.dtype = "bfloat16";
  for (std::int32_t layer = 0; layer < 48; ++layer) wanted.moe_layers.push_back(LayerId{layer});
  DecoderConfig& decoder = wanted.decoder.emplace();
  decoder.heads = 32;
  decoder.kv_heads = 4;
  decoder.head_dim = 128;
  decoder.vocab_size = 151936;
  decoder.max_position = 40960;
  decoder.dense_intermediate = 6144;
  decoder.norm_topk_prob = true;
  decoder.rope_theta = 1e6;
  decoder.rms_norm_eps = 1e-6;
  decoder.eos_token_ids = {151645};
  EXPECT_EQ(before, wanted);
}

TEST(ModelConfigTest, ShapeAndLayersFollow) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                          ParseModelConfig(With(With(With(OldSpelling(), "num_hidden_layers", 8),
                                                     "decoder_sparse_step", 2),
                                                "mlp_only_layers", {3})
                                               .dump()));

  EXPECT_EQ(ShapeOf(config),
            (MoeShape{.hidden = 2048, .intermediate = 768, .experts = 128, .top_k = 8}));
  EXPECT_EQ(MoeLayersOf(config), (std::vector<LayerId>{LayerId{1}, LayerId{5}, LayerId{7}}));
}

TEST(ModelConfigTest, MissingOptionalValuesTakeTheFamilysDefaults) {
  Json config = OldSpelling();
  for (const char* key :
       {"attention_bias", "decoder_sparse_step", "eos_token_id", "hidden_act", "intermediate_size",
        "mlp_only_layers", "norm_topk_prob", "rms_norm_eps", "tie_word_embeddings", "torch_dtype",
        "use_sliding_window", "architectures", "head_dim"}) {
    config.erase(key);
  }
  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig parsed, ParseModelConfig(config.dump()));

  ASSERT_TRUE(parsed.decoder.has_value());
  EXPECT_FALSE(parsed.decoder->norm_topk_prob);
  EXPECT_EQ(parsed.decoder->head_dim, 2048 / 32);
  EXPECT_EQ(parsed.decoder->rms_norm_eps, 1e-6);
  EXPECT_EQ(parsed.decoder->rope_type, "default");
  EXPECT_EQ(parsed.dtype, "");
  EXPECT_TRUE(parsed.decoder->eos_token_ids.empty());
  EXPECT_EQ(MoeLayersOf(parsed).size(), 48U);
}

TEST(ModelConfigTest, TakesTheVariantsThatOccur) {
  SY_ASSERT_OK_AND_ASSIGN(
      const ModelConfig several_ends,
      ParseModelConfig(With(OldSpelling(), "eos_token_id", {151645, 151643}).dump()));
  EXPECT_EQ(several_ends.decoder->eos_token_ids, (std::vector<std::int32_t>{151645, 151643}));

  SY_ASSERT_OK_AND_ASSIGN(
      const ModelConfig yarn,
      ParseModelConfig(With(OldSpelling(), "rope_scaling", {{"rope_type", "yarn"}}).dump()));
  EXPECT_EQ(yarn.decoder->rope_type, "yarn");

  SY_EXPECT_OK(ParseModelConfig(With(OldSpelling(), "eos_token_id", nullptr).dump()));
  SY_EXPECT_OK(ParseModelConfig(With(OldSpelling(), "rope_theta", 10000).dump()));
  // Both spellings at once, agreeing.
  SY_EXPECT_OK(ParseModelConfig(With(OldSpelling(), "num_local_experts", 128).dump()));
  SY_EXPECT_OK(ParseModelConfig(With(OldSpelling(), "quantization_config", nullptr).dump()));
}

struct BadValue {
  Json config;
  const char* key;  // that the error must name
};

TEST(ModelConfigTest, RefusesBadValuesNamingTheKey) {
  const Json good = OldSpelling();
  std::vector<BadValue> cases{
      // Contradictions.
      {With(good, "num_local_experts", 64), "num_local_experts"},
      {With(good, "rope_parameters.rope_theta", 10000.0), "rope_parameters.rope_theta"},
      {With(good, "dtype", "float32"), "torch_dtype"},
      {With(good, "num_experts_per_tok", 129), "num_experts_per_tok"},
      {With(good, "num_key_value_heads", 5), "num_key_value_heads"},
      {With(good, "head_dim", 3), "head_dim"},
      {With(good, "mlp_only_layers", {48}), "mlp_only_layers"},
      {With(good, "mlp_only_layers", {-1}), "mlp_only_layers"},
      {Without(With(good, "decoder_sparse_step", 2), "intermediate_size"), "intermediate_size"},
      {With(good, "architectures", {"Qwen3ForCausalLM"}), "architectures"},
      // Ranges.
      {With(good, "hidden_size", 0), "hidden_size"},
      {With(good, "hidden_size", -2048), "hidden_size"},
      {With(good, "hidden_size", 1 << 25), "hidden_size"},
      {With(good, "hidden_size", 18446744073709551615U), "hidden_size"},
      {With(With(good, "hidden_size", 1 << 20), "moe_intermediate_size", 1025),
       "moe_intermediate_size"},
      {With(good, "num_experts", 0), "num_experts"},
      {With(good, "num_experts", 65537), "num_experts"},
      {With(good, "num_hidden_layers", 4097), "num_hidden_layers"},
      {With(good, "decoder_sparse_step", 0), "decoder_sparse_step"},
      {With(good, "rope_theta", 0), "rope_theta"},
      {With(good, "rms_norm_eps", -1e-6), "rms_norm_eps"},
      {With(good, "eos_token_id", -1), "eos_token_id"},
      // Types.
      {With(good, "hidden_size", 2048.0), "hidden_size"},
      {With(good, "hidden_size", "2048"), "hidden_size"},
      {With(good, "rope_theta", "1e6"), "rope_theta"},
      {With(good, "norm_topk_prob", 1), "norm_topk_prob"},
      {With(good, "torch_dtype", 16), "torch_dtype"},
      {With(good, "mlp_only_layers", {"3"}), "mlp_only_layers"},
      {With(good, "architectures", "Qwen3MoeForCausalLM"), "architectures"},
      {With(good, "architectures", {1}), "architectures"},
      {With(good, "model_type", 3), "model_type"},
  };
  for (const char* key :
       {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "max_position_embeddings", "num_experts",
        "num_experts_per_tok", "moe_intermediate_size", "rope_theta"}) {
    cases.push_back({Without(good, key), key});
    cases.push_back({With(good, key, nullptr), key});
  }
  for (const BadValue& bad : cases) {
    const absl::Status status = ParseModelConfig(bad.config.dump()).status();

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << bad.key;
    EXPECT_EQ(MetadataOf(status)["key"], bad.key) << status;
    EXPECT_NE(status.message().find(bad.key), absl::string_view::npos) << status;
  }
}

// Whatever a family calls them: sizes, which layers have experts, drafts. No decoder is read.
TEST(ModelConfigTest, TheExpertsOfEveryFamilyAreRead) {
  for (const testing::FamilyCheckpoint& family : testing::FamilyCheckpoints()) {
    SCOPED_TRACE(family.name);
    SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(family.config.dump()));

    EXPECT_EQ(config.model_type, family.config["model_type"]);
    EXPECT_EQ(config.architecture, family.config["architectures"][0]);
    EXPECT_EQ(ShapeOf(config), family.shape);
    EXPECT_EQ(config.layers, family.layers);
    EXPECT_EQ(config.draft_layers, family.drafts);
    std::vector<LayerId> layers;
    for (const testing::FamilyLayer& at : family.moe_layers) layers.push_back(at.layer);
    EXPECT_EQ(MoeLayersOf(config), layers);
    EXPECT_FALSE(config.decoder.has_value());
  }
}

TEST(ModelConfigTest, RefusesExpertsThatCannotBeServedOfAnyFamily) {
  const Json kimi = testing::KimiFamily().config;
  const Json mixtral = testing::MixtralFamily().config;
  const BadValue cases[] = {
      {Without(mixtral, "num_experts_per_tok"), "num_experts_per_tok"},
      {With(kimi, "text_config.num_experts_per_tok", nullptr), "num_experts_per_tok"},
      {With(kimi, "text_config.num_experts_per_tok", 8), "text_config.num_experts_per_tok"},
      {With(kimi, "text_config.first_k_dense_replace", 3), "text_config.num_hidden_layers"},
      {With(kimi, "text_config", 3), "text_config"},
      {With(With(mixtral, "hidden_size", 1 << 16), "intermediate_size", 1 << 15),
       "intermediate_size"},
      {With(mixtral, "torch_dtype", 16), "torch_dtype"},
      {With(mixtral, "architectures", "MixtralForCausalLM"), "architectures"},
  };
  for (const BadValue& bad : cases) {
    const absl::Status status = ParseModelConfig(bad.config.dump()).status();

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << bad.key;
    EXPECT_EQ(MetadataOf(status)["key"], bad.key) << status;
  }
  EXPECT_THAT(ParseModelConfig(With(kimi, "text_config.hidden_act", "gelu").dump()),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

TEST(ModelConfigTest, ListsTheKnownFamiliesWhenTheModelIsOfAnother) {
  const absl::Status status =
      ParseModelConfig(With(OldSpelling(), "model_type", "llama").dump()).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_NE(status.message().find("'llama'"), absl::string_view::npos);
  for (const testing::FamilyCheckpoint& family : testing::FamilyCheckpoints()) {
    EXPECT_NE(status.message().find(family.config["model_type"].get<std::string>()),
              absl::string_view::npos);
  }
  for (const DecoderFamily& family : DecoderFamilies()) {
    EXPECT_NE(status.message().find(family.model_type), absl::string_view::npos);
    EXPECT_EQ(FindDecoderFamily(family.model_type), &family);
  }
}

// This reader does not check how the weights are stored.
TEST(ModelConfigTest, LeavesQuantConfigsToTheirReader) {
  const auto quantized = ParseModelConfig(
      With(OldSpelling(), "quantization_config", {{"quant_method", "fp8"}}).dump());
  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig plain, ParseModelConfig(OldSpelling().dump()));
  SY_ASSERT_OK(quantized.status());
  EXPECT_EQ(*quantized, plain);
}

TEST(ModelConfigTest, DraftLayersFollowTheOthers) {
  for (const char* key : {"mtp_num_hidden_layers", "num_nextn_predict_layers"}) {
    SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                            ParseModelConfig(With(OldSpelling(), key, 2).dump()));
    EXPECT_EQ(config.draft_layers, 2);
    const std::vector<LayerId> layers = MoeLayersOf(config);
    ASSERT_GE(layers.size(), 3U);
    EXPECT_EQ(layers.back(), LayerId{config.layers + 1});
    EXPECT_EQ(layers[layers.size() - 2], LayerId{config.layers});
  }
}

TEST(ModelConfigTest, RefusesWhatCannotBeServed) {
  EXPECT_THAT(ParseModelConfig(With(OldSpelling(), "hidden_act", "gelu").dump()),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

// gpt-oss writes "silu" and clamps; a family that is served would give wrong numbers in silence.
TEST(ModelConfigTest, RefusesKeysThatChangeTheActivationBehindItsName) {
  for (const char* key : {"swiglu_limit", "swiglu_limits", "swiglu_alpha"}) {
    const absl::Status status = ParseModelConfig(With(OldSpelling(), key, 7.0).dump()).status();

    EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported)) << key;
    EXPECT_EQ(MetadataOf(status)["key"], key) << status;
    SY_EXPECT_OK(ParseModelConfig(With(OldSpelling(), key, nullptr).dump()).status());
  }
}

}  // namespace
}  // namespace switchyard
