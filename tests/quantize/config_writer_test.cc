#include "quantize/config_writer.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "model/quant/config/quant_config.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kConfig[] = R"({"zebra": 1e-06, "model_type": "qwen3_moe", "alpha": [1]})";

// Layer 1's experts are quantized, layer 10's and a draft layer's are not.
std::vector<DescribedTensor> Tensors() {
  const auto expert = [](const char* name, Projection projection) {
    return DescribedTensor{name, true, true, projection};
  };
  return {{"model.embed_tokens.weight", true},
          {"model.layers.1.self_attn.q_proj.weight", true},
          {"model.layers.1.input_layernorm.weight", false},
          {"model.layers.1.mlp.gate.weight", true},
          {"model.layers.1.mlp.shared_expert.up_proj.weight", true},
          expert("model.layers.1.mlp.experts.0.gate_proj.weight", Projection::kGate),
          expert("model.layers.1.mlp.experts.0.down_proj.weight", Projection::kDown),
          {"model.layers.10.mlp.experts.0.gate_proj.weight", true},
          {"model.layers.10.mlp.experts.1.gate_proj.weight", true},
          {"mtp.layers.0.mlp.experts.gate_up_proj", true}};
}

ConfigRequest RequestFor(const char* scheme) {
  return {.scheme = *FindWriteScheme(scheme),
          .config_json = kConfig,
          .tensors = Tensors(),
          .quantized = {"model.layers.1.mlp.experts"}};
}

std::map<std::string, std::string> Written(const char* scheme) {
  std::map<std::string, std::string> files;
  const auto made = WriteQuantConfig(RequestFor(scheme));
  SY_EXPECT_OK(made);
  for (const ConfigFile& file : *made) files[file.name] = file.text;
  return files;
}

TEST(ConfigWriterTest, NamesEveryModuleThatStays) {
  EXPECT_THAT(
      ExcludedModules(Tensors()),
      ElementsAre("lm_head", "model.embed_tokens", "model.layers.1.mlp.gate",
                  "model.layers.1.mlp.shared_expert.up_proj", "model.layers.1.self_attn.q_proj",
                  "model.layers.10.mlp.experts", "mtp.layers.0.mlp.experts"));
}

TEST(ConfigWriterTest, KeepsTheOrderOfTheKeysAndAddsItsOwnLast) {
  const std::string text = Written("fp8_block")["config.json"];
  const Json json = Json::parse(text);
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre("zebra", "model_type", "alpha", "quantization_config"));
  EXPECT_THAT(text, HasSubstr("1e-06"));
}

TEST(ConfigWriterTest, OnlyFormsWithAFileOfTheirOwnLeaveConfigAlone) {
  for (const char* scheme : {"modelopt_nvfp4_file", "modelslim_w8a8", "modelslim_w4a4"}) {
    auto files = Written(scheme);
    EXPECT_EQ(files["config.json"], kConfig) << scheme;
    EXPECT_EQ(files.size(), 2U) << scheme;
  }
  EXPECT_EQ(Written("awq").size(), 1U);
}

// R95: what is written is what our reader takes: the router, attention and shared experts out, the
// layer that stays out, its neighbor with a like number in.
TEST(ConfigWriterTest, TheReaderExcludesWhatStaysAndNothingElse) {
  for (const WriteScheme& scheme : WriteSchemes()) {
    auto files = Written(scheme.name);
    QuantConfigFiles texts{.config_json = files["config.json"]};
    if (files.contains("hf_quant_config.json"))
      texts.hf_quant_config = files["hf_quant_config.json"];
    if (files.contains("quant_model_description.json")) {
      texts.quant_model_description = files["quant_model_description.json"];
    }
    SY_ASSERT_OK_AND_ASSIGN(const QuantConfig config, ParseQuantConfig(texts));
    EXPECT_TRUE(config.warnings.empty()) << scheme.name;
    if (config.description.has_value()) {
      const auto type = [&](const char* name) { return *config.description->TypeOf(name); };
      EXPECT_EQ(type("model.layers.1.mlp.gate"), "FLOAT") << scheme.name;
      EXPECT_EQ(type("model.layers.10.mlp.experts.0.gate_proj"), "FLOAT") << scheme.name;
      EXPECT_NE(type("model.layers.1.mlp.experts.0.gate_proj"), "FLOAT") << scheme.name;
      continue;
    }
    ASSERT_EQ(config.groups.size(), 1U) << scheme.name;
    EXPECT_EQ(config.groups[0].quant, scheme.gate_up) << scheme.name;
    for (const char* out : {"lm_head", "model.layers.1.mlp.gate", "model.layers.1.self_attn.q_proj",
                            "model.layers.1.mlp.shared_expert.up_proj"}) {
      EXPECT_NE(config.excluded.Match(out), "") << scheme.name << " " << out;
    }
    const bool kept = !config.excluded.Match("model.layers.10.mlp.experts").empty() ||
                      !config.excluded.Match("model.layers.10.mlp.experts.0.gate_proj").empty();
    EXPECT_TRUE(kept) << scheme.name;
    for (const char* in :
         {"model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj"}) {
      EXPECT_EQ(config.excluded.Match(in), "") << scheme.name << " " << in;
    }
  }
}

TEST(ConfigWriterTest, DownOfW4A4IsDescribedAsInt8) {
  const Json json = Json::parse(Written("modelslim_w4a4")["quant_model_description.json"]);
  EXPECT_EQ(json.at("model.layers.1.mlp.experts.0.gate_proj.weight"), "W4A4_DYNAMIC");
  EXPECT_EQ(json.at("model.layers.1.mlp.experts.0.down_proj.weight"), "W8A8_DYNAMIC");
}

TEST(ConfigWriterTest, RefusesWhatIsNoConfigOrQuantizedAlready) {
  for (const char* text : {"[]", "{", R"({"quantization_config": {}})",
                           R"({"text_config": {"quantization_config": null}})"}) {
    ConfigRequest request = RequestFor("awq");
    request.config_json = text;
    EXPECT_THAT(WriteQuantConfig(request),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << text;
  }
}

}  // namespace
}  // namespace switchyard
