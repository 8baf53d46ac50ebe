#include "model/quant/config/quant_config.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "model/quant/config/quant_families.h"
#include "tests/model/quant/quant_configs.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FilesOf;
using testing::Json;

ProjectionQuant OnlyQuantOf(const absl::StatusOr<QuantConfig>& config) {
  SY_EXPECT_OK(config.status());
  if (!config.ok() || config->groups.size() != 1) return {};
  EXPECT_TRUE(config->groups[0].every_linear);
  return config->groups[0].quant;
}

TEST(QuantConfigTest, AConfigWithoutQuantizationIsNone) {
  for (const char* text : {"{}", R"({"quantization_config": null})", R"({"text_config": {}})",
                           R"({"text_config": {"quantization_config": null}})"}) {
    SY_ASSERT_OK_AND_ASSIGN(const QuantConfig config, ParseQuantConfig({.config_json = text}));
    EXPECT_EQ(config.family, "none");
    EXPECT_TRUE(config.groups.empty());
    EXPECT_TRUE(config.excluded.empty());
  }
}

struct Detected {
  const char* name;
  Json quantization_config;
  const char* family;
  ProjectionQuant quant;
};

std::vector<Detected> DetectedFp8() {
  Json ue8m0 = testing::Fp8BlockConfig();
  ue8m0["scale_fmt"] = "ue8m0";
  return {
      // R74
      {"fp8 block",
       testing::Fp8BlockConfig(),
       "fp8",
       {.layout = QuantLayout::kFp8Block, .block = {128, 128}}},
      {"fp8 block, scales of powers of two",
       ue8m0,
       "fp8",
       {.layout = QuantLayout::kFp8Block, .block = {128, 128}, .power_of_two_scales = true}},
      {"compressed-tensors fp8 block",
       testing::Fp8CompressedBlockConfig(),
       "compressed-tensors",
       {.layout = QuantLayout::kFp8BlockCompressed, .block = {128, 128}}},
      // R75
      {"fp8 tensor static",
       {{"quant_method", "fp8"}, {"activation_scheme", "static"}},
       "fp8",
       {.layout = QuantLayout::kFp8Tensor, .static_inputs = true}},
      {"fp8 tensor dynamic",
       {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}},
       "fp8",
       {.layout = QuantLayout::kFp8Tensor}},
      {"modelopt fp8",
       {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}},
       "modelopt",
       {.layout = QuantLayout::kFp8Tensor, .static_inputs = true}},
      {"compressed-tensors fp8 tensor",
       testing::CompressedConfig("float-quantized",
                                 testing::Arguments(8, "float", "tensor", 0, false),
                                 testing::Arguments(8, "float", "tensor", 0, false)),
       "compressed-tensors",
       {.layout = QuantLayout::kFp8Tensor, .static_inputs = true}},
      // R76
      {"fp8 channel",
       testing::Fp8ChannelConfig(),
       "compressed-tensors",
       {.layout = QuantLayout::kFp8Channel}},
  };
}

std::vector<Detected> DetectedOthers() {
  return {
      // R77
      {"modelopt nvfp4",
       testing::ModelOptFlatConfig(),
       "modelopt",
       {.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16, .static_inputs = true}},
      {"modelopt nvfp4 without a method",
       {{"quant_algo", "NVFP4"}, {"group_size", 16}},
       "modelopt",
       {.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16, .static_inputs = true}},
      // R78
      {"compressed-tensors nvfp4",
       testing::Nvfp4CompressedConfig(),
       "compressed-tensors",
       {.layout = QuantLayout::kNvfp4Compressed, .group_size = 16, .static_inputs = true}},
      // R79
      {"w4afp8",
       testing::W4Afp8Config(),
       "w4afp8",
       {.layout = QuantLayout::kW4Afp8, .group_size = 128, .static_inputs = true}},
      // R80
      {"w8a8", testing::Int8Config(), "compressed-tensors", {.layout = QuantLayout::kInt8Channel}},
      // R84
      {"w4a16",
       testing::KimiConfig(),
       "compressed-tensors",
       {.layout = QuantLayout::kPackQuantized, .group_size = 32}},
      // R85
      {"awq",
       testing::AwqConfig(),
       "awq",
       {.layout = QuantLayout::kAwq, .group_size = 128, .zero_points = true}},
  };
}

// Configs as the tools write them today, with the keys that they add from version to version.
std::vector<Detected> DetectedAsWritten() {
  const ProjectionQuant awq{.layout = QuantLayout::kAwq, .group_size = 128, .zero_points = true};
  return {
      {"FineGrainedFP8Config of transformers 5.23",
       Json::parse(R"({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"],
         "modules_to_convert": null, "activation_scheme": "dynamic",
         "weight_block_size": [128, 128], "dequantize": false, "scale_fmt": "float",
         "expert_dtype": "fp8"})"),
       "fp8",
       {.layout = QuantLayout::kFp8Block, .block = {128, 128}}},
      {"AwqConfig of transformers 5.23",
       Json::parse(R"({"zero_point": true, "modules_to_not_convert": ["gate"],
         "quant_method": "awq", "bits": 4, "tokenizer": null, "dataset": null, "group_size": 128,
         "damp_percent": 0.1, "desc_act": false, "act_group_aware": true, "sym": true,
         "true_sequential": true, "format": "gemm", "meta": null, "backend": "auto",
         "model_seqlen": null, "block_name_to_quantize": null,
         "module_name_preceding_first_block": null, "batch_size": 1, "pad_token_id": null,
         "max_input_length": null, "cache_block_outputs": true,
         "modules_in_block_to_quantize": null, "version": "gemm"})"),
       "awq", awq},
      {"AWQConfig of GPTQModel 7.7",
       Json::parse(R"({"bits": 4, "group_size": 128, "desc_act": false, "lm_head": false,
         "method": "awq", "quant_method": "awq", "format": "gemm", "checkpoint_format": "gemm",
         "pack_dtype": "int32", "zero_point": false, "version": "gemm",
         "meta": {"quantizer": ["gptqmodel:7.7.0"], "uri": "", "act_group_aware": false,
                  "fallback": {"strategy": "rtn"}, "hessian": {"chunk_size": null}}})"),
       "awq", awq},
      {"export_to_awq of auto-round 0.16",
       Json::parse(R"({"bits": 4, "data_type": "int", "group_size": 128, "sym": true,
         "enable_quanted_input": false, "iters": 50, "lr": 0.02, "minmax_lr": 0.02,
         "low_gpu_mem_usage": true, "nsamples": 512, "batch_size": 4, "autoround_version": "0.16.1",
         "to_quant_block_names": "model.layers", "provider": "auto-round", "quant_method": "awq",
         "zero_point": false, "version": "gemm", "modules_to_not_convert": ["gate"]})"),
       "awq", awq},
      {"compressed-tensors 0.20",
       Json::parse(R"({"config_groups": {"group_0": {"targets": ["Linear"],
           "weights": {"num_bits": 4, "type": "int", "symmetric": true, "group_size": 32,
                       "strategy": "group", "dynamic": false},
           "input_activations": null, "output_activations": null, "format": "pack-quantized"}},
         "quant_method": "compressed-tensors", "kv_cache_scheme": null,
         "format": "pack-quantized", "quantization_status": "compressed",
         "global_compression_ratio": null, "ignore": ["lm_head"], "moe_sparsity_config": null,
         "version": "0.20.0", "sparsity_config": {}, "transform_config": {}})"),
       "compressed-tensors",
       {.layout = QuantLayout::kPackQuantized, .group_size = 32}},
  };
}

std::vector<Detected> EveryDetected() {
  std::vector<Detected> all = DetectedFp8();
  for (Detected& row : DetectedOthers()) all.push_back(std::move(row));
  for (Detected& row : DetectedAsWritten()) all.push_back(std::move(row));
  return all;
}

// R74-R80, R84, R85: each family is known by its own metadata.
TEST(QuantConfigTest, EveryFamilyIsDetectedFromItsMetadata) {
  for (const Detected& row : EveryDetected()) {
    SCOPED_TRACE(row.name);
    const auto config = ParseQuantConfig(FilesOf(row.quantization_config));
    EXPECT_EQ(OnlyQuantOf(config), row.quant);
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->family, row.family);
  }
}

// R84: models of several parts keep it in text_config; both places may hold the same.
TEST(QuantConfigTest, ReadsTheTextConfigOfModelsOfSeveralParts) {
  Json config = {{"text_config", {{"quantization_config", testing::KimiConfig()}}}};
  EXPECT_EQ(OnlyQuantOf(ParseQuantConfig({.config_json = config.dump()})).group_size, 32);
  config["quantization_config"] = testing::KimiConfig();
  SY_EXPECT_OK(ParseQuantConfig({.config_json = config.dump()}));
  config["quantization_config"]["ignore"] = Json::array();
  EXPECT_THAT(ParseQuantConfig({.config_json = config.dump()}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

// R77: the older form is a file of its own; together the two must say the same.
TEST(QuantConfigTest, ReadsModelOptsOwnFile) {
  QuantConfigFiles files{.config_json = "{}",
                         .hf_quant_config = testing::ModelOptFileConfig().dump()};
  SY_ASSERT_OK_AND_ASSIGN(const QuantConfig config, ParseQuantConfig(files));
  EXPECT_EQ(config.family, "modelopt");
  EXPECT_EQ(config.groups.at(0).quant.layout, QuantLayout::kNvfp4ModelOpt);
  EXPECT_EQ(config.excluded.Match("model.layers.61.mlp.experts"), "model.layers.61*");

  files.config_json = FilesOf(testing::ModelOptFlatConfig()).config_json;
  SY_ASSERT_OK_AND_ASSIGN(const QuantConfig both, ParseQuantConfig(files));
  EXPECT_EQ(both.groups.size(), 1U);
  EXPECT_NE(both.excluded.Match("model.layers.4.mlp.gate"), "") << "exclusions of both hold";

  Json other = testing::ModelOptFlatConfig();
  other["quant_algo"] = "FP8";
  files.config_json = FilesOf(other).config_json;
  EXPECT_THAT(ParseQuantConfig(files),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

// R81-R83: the description goes before a quantization_config that the conversion left behind.
TEST(QuantConfigTest, TheDescriptionOfModelSlimGoesFirst) {
  QuantConfigFiles files = FilesOf(testing::Fp8BlockConfig());
  files.quant_model_description = R"({"m.weight": "W8A8_DYNAMIC"})";

  SY_ASSERT_OK_AND_ASSIGN(const QuantConfig config, ParseQuantConfig(files));

  EXPECT_EQ(config.family, "modelslim");
  ASSERT_TRUE(config.description.has_value());
  EXPECT_NE(config.description->TypeOf("m"), nullptr);
  ASSERT_EQ(config.warnings.size(), 1U);
  EXPECT_NE(config.warnings[0].find("'fp8'"), std::string::npos);
}

TEST(QuantConfigTest, HandsTheDispatchKeysOnUntouched) {
  for (const Detected& row : EveryDetected()) {
    SCOPED_TRACE(row.name);
    SY_ASSERT_OK_AND_ASSIGN(const QuantConfig plain,
                            ParseQuantConfig(FilesOf(row.quantization_config)));
    EXPECT_EQ(plain.dispatch, DispatchKeys{});

    Json with = row.quantization_config;
    with["input_global_scale"] = nullptr;
    with["dispatcher_output_dtype"] = "not judged here";
    with["bf16_dispatch"] = false;
    SY_ASSERT_OK_AND_ASSIGN(const QuantConfig config, ParseQuantConfig(FilesOf(with)));
    EXPECT_EQ(config.dispatch.input_global_scale, KeyPresence::kNull);
    EXPECT_EQ(config.dispatch.dispatcher_output_dtype, "not judged here");
    EXPECT_EQ(config.dispatch.bf16_dispatch, false);

    with["input_global_scale"] = 0.25;
    EXPECT_EQ(ParseQuantConfig(FilesOf(with))->dispatch.input_global_scale, KeyPresence::kPresent);
  }
}

// A key that changes what weights mean, or only might, is never skipped.
TEST(QuantConfigTest, EveryFamilyRefusesKeysThatItDoesNotKnow) {
  for (const Detected& row : EveryDetected()) {
    Json with = row.quantization_config;
    with["dispather_output_dtype"] = "bf16";
    const absl::Status status = ParseQuantConfig(FilesOf(with)).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << row.name;
    EXPECT_EQ(MetadataOf(status).at("key"), "quantization_config.dispather_output_dtype");
  }
}

struct Hostile {
  Json base;
  Json patch;  // merged into base
  absl::StatusCode code;
  std::string key;  // below quantization_config
};

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kNo = absl::StatusCode::kUnimplemented;

Json Group(Json patch) { return {{"config_groups", {{"group_0", std::move(patch)}}}}; }
Json Weights(Json arguments) { return Group({{"weights", std::move(arguments)}}); }

std::vector<Hostile> HostileFp8() {
  const Json fp8 = testing::Fp8BlockConfig();
  return {
      {fp8, {{"quant_method", "gptq"}}, kNo, "quant_method"},
      {fp8, {{"quant_method", nullptr}}, kNo, "quant_method"},
      {fp8, {{"quant_method", 3}}, kBad, "quant_method"},
      {fp8, {{"fmt", "e5m2"}}, kNo, "fmt"},
      {fp8, {{"fmt", 4}}, kBad, "fmt"},
      {fp8, {{"activation_scheme", nullptr}}, kBad, "activation_scheme"},
      {fp8, {{"activation_scheme", "sometimes"}}, kBad, "activation_scheme"},
      {fp8, {{"activation_scheme", "static"}}, kNo, "activation_scheme"},
      {fp8, {{"weight_block_size", {128, 64}}}, kNo, "weight_block_size"},
      {fp8, {{"weight_block_size", Json::array()}}, kNo, "weight_block_size"},
      {fp8, {{"weight_block_size", {128}}}, kNo, "weight_block_size"},
      {fp8, {{"weight_block_size", {0, 128}}}, kBad, "weight_block_size"},
      {fp8, {{"weight_block_size", "128"}}, kBad, "weight_block_size"},
      {fp8, {{"weight_block_size", {1e300, 128}}}, kBad, "weight_block_size"},
      {fp8, {{"scale_fmt", "e5m10"}}, kNo, "scale_fmt"},
      {fp8, {{"modules_to_convert", {"experts"}}}, kNo, "modules_to_convert"},
      {fp8, {{"scale_fmt", "ue8m0"}, {"weight_block_size", nullptr}}, kBad, "scale_fmt"},
      {fp8, {{"expert_dtype", "fp4"}}, kNo, "expert_dtype"},
      {fp8, {{"weight_per_tensor", true}}, kNo, "weight_per_tensor"},
      {fp8, {{"act_per_tensor", true}}, kNo, "act_per_tensor"},
      {fp8, {{"modules_to_not_convert", "lm_head"}}, kBad, "modules_to_not_convert"},
      {fp8, {{"modules_to_not_convert", {1}}}, kBad, "modules_to_not_convert"},
      {fp8, {{"ignored_layers", {""}}}, kBad, "ignored_layers"},
      {fp8, {{"bf16_dispatch", "yes"}}, kBad, "bf16_dispatch"},
      {fp8, {{"dispatcher_output_dtype", 8}}, kBad, "dispatcher_output_dtype"},
  };
}

std::vector<Hostile> HostileW4Afp8() {
  const Json w4afp8 = testing::W4Afp8Config();
  return {
      {w4afp8, {{"group_size", 32}}, kNo, "group_size"},
      {w4afp8, {{"group_size", -1}}, kBad, "group_size"},
      {w4afp8, {{"moe_weight_format", "mxfp4"}}, kNo, "moe_weight_format"},
      {w4afp8, {{"moe_activation_scheme", "dynamic"}}, kNo, "moe_activation_scheme"},
  };
}

std::vector<Hostile> HostileModelOpt() {
  const Json modelopt = testing::ModelOptFlatConfig();
  return {
      {modelopt, {{"quant_algo", "W4A16_AWQ"}}, kNo, "quant_algo"},
      {modelopt, {{"quant_algo", nullptr}}, kBad, "quant_algo"},
      {modelopt, {{"group_size", 32}}, kNo, "group_size"},
      {modelopt, Group({{"weights", {{"group_size", 32}}}}), kNo,
       "config_groups.group_0.weights.group_size"},
      {modelopt, Group({{"weights", {{"group_size", "16"}}}}), kBad,
       "config_groups.group_0.weights.group_size"},
      {modelopt, {{"config_groups", {{"group_0", 3}}}}, kBad, "config_groups.group_0"},
      {modelopt, {{"ignore", {"model.layers.[0-9]"}}}, kBad, "ignore"},
      {modelopt, {{"exclude_modules", {7}}}, kBad, "exclude_modules"},
      {modelopt, {{"has_zero_point", true}}, kNo, "has_zero_point"},
      {modelopt, {{"pre_quant_scale", true}}, kNo, "pre_quant_scale"},
  };
}

std::vector<Hostile> HostileCompressed() {
  const Json kimi = testing::KimiConfig();
  return {
      {kimi, {{"format", nullptr}}, kBad, "config_groups.group_0.format"},
      {kimi, {{"format", "marlin-24"}}, kNo, "config_groups.group_0"},
      {kimi, {{"config_groups", nullptr}}, kBad, "config_groups"},
      {kimi, {{"ignore", {"re:(?=a)"}}}, kBad, "ignore"},
      {kimi, {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}, kNo, "sparsity_config"},
      {kimi, {{"transform_config", {{"config_groups", {{"u", 1}}}}}}, kNo, "transform_config"},
      {kimi, Weights({{"num_bits", nullptr}}), kBad, "config_groups.group_0.weights.num_bits"},
      {kimi, Weights({{"num_bits", 3}}), kNo, "config_groups.group_0"},
      {kimi, Weights({{"num_bits", -4}}), kBad, "config_groups.group_0.weights.num_bits"},
      {kimi, Weights({{"group_size", 1e9}}), kBad, "config_groups.group_0.weights.group_size"},
      {kimi, Weights({{"group_size", 0}}), kNo, "config_groups.group_0"},
      {kimi, Weights({{"symmetric", false}}), kNo, "config_groups.group_0"},
      {kimi, Weights({{"dynamic", true}}), kBad, "config_groups.group_0.weights.dynamic"},
      {kimi, Weights({{"dynamic", "often"}}), kBad, "config_groups.group_0.weights.dynamic"},
      {kimi, Weights({{"dynamic", 1}}), kBad, "config_groups.group_0.weights.dynamic"},
      {kimi, Weights({{"actorder", "group"}}), kNo, "config_groups.group_0.weights.actorder"},
      {kimi, Weights({{"strategy", "channel "}}), kNo, "config_groups.group_0"},
      {kimi, Weights({{"zp", 1}}), kBad, "config_groups.group_0.weights.zp"},
      {kimi, Group({{"input_activations", testing::Arguments(8, "int", "token", 0, true)}}), kNo,
       "config_groups.group_0"},
      {kimi, Group({{"output_activations", {{"num_bits", 8}}}}), kNo,
       "config_groups.group_0.output_activations"},
      {kimi, Group({{"targets", nullptr}}), kBad, "config_groups.group_0.targets"},
      {kimi, Group({{"targets", "Linear"}}), kBad, "config_groups.group_0.targets"},
      {kimi, Group({{"targets", {"re:["}}}), kBad, "config_groups.group_0.targets"},
      {kimi, Group({{"weights", nullptr}}), kBad, "config_groups.group_0.weights"},
      {testing::Int8Config(), Group({{"input_activations", nullptr}}), kNo,
       "config_groups.group_0"},
  };
}

std::vector<Hostile> HostileAwq() {
  const Json awq = testing::AwqConfig();
  return {
      {awq, {{"bits", 3}}, kNo, "bits"},
      {awq, {{"bits", nullptr}}, kBad, "bits"},
      {awq, {{"w_bit", 8}}, kBad, "w_bit"},
      {awq, {{"group_size", 0}}, kBad, "group_size"},
      {awq, {{"group_size", -2}}, kBad, "group_size"},
      {awq, {{"zero_point", "no"}}, kBad, "zero_point"},
      {awq, {{"zero_point", nullptr}}, kBad, "zero_point"},
      {awq, {{"version", "gemv"}}, kNo, "version"},
      {awq, {{"format", "gemv_fast"}}, kNo, "format"},
      {awq, {{"checkpoint_format", "marlin"}}, kNo, "checkpoint_format"},
      {awq, {{"pack_dtype", "int16"}}, kNo, "pack_dtype"},
      {awq, {{"data_type", "fp"}}, kNo, "data_type"},
      {awq, {{"desc_act", true}}, kNo, "desc_act"},
      {awq, {{"dynamic", {{"re:.*", {{"bits", 8}}}}}}, kNo, "dynamic"},
      {awq, {{"extra_config", {{"m", {{"bits", 8}}}}}}, kNo, "extra_config"},
      {awq, {{"rotation", "hadamard"}}, kNo, "rotation"},
      {awq, {{"modules_in_block_to_quantize", {{"a"}}}}, kNo, "modules_in_block_to_quantize"},
      {awq, {{"super_bits", 6}}, kNo, "super_bits"},
      {awq, {{"act_bits", 8}}, kNo, "act_bits"},
  };
}

std::vector<Hostile> EveryHostile() {
  std::vector<Hostile> all;
  for (auto rows :
       {HostileFp8(), HostileW4Afp8(), HostileModelOpt(), HostileCompressed(), HostileAwq()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(QuantConfigTest, EachKindOfWrongValueIsRefusedWithItsKey) {
  for (const Hostile& row : EveryHostile()) {
    Json config = row.base;
    // merge_patch takes null for "remove", which is what a null means here too.
    config.merge_patch(row.patch);
    SCOPED_TRACE(config.dump());
    const absl::Status status = ParseQuantConfig(FilesOf(config)).status();
    const Reason reason =
        row.code == absl::StatusCode::kUnimplemented ? Reason::kUnsupported : Reason::kBadConfig;
    ASSERT_THAT(status, FailsWith(row.code, reason));
    EXPECT_EQ(MetadataOf(status).at("key"), "quantization_config." + row.key) << status;
    EXPECT_NE(status.message().find(row.key), absl::string_view::npos);
  }
}

TEST(QuantConfigTest, FilesThatAreNoJsonObjectAreNamed) {
  const auto key_of = [](const QuantConfigFiles& files) {
    const absl::Status status = ParseQuantConfig(files).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    return MetadataOf(status)["key"];
  };

  EXPECT_EQ(key_of({.config_json = "["}), "config.json");
  EXPECT_EQ(key_of({.config_json = "[]"}), "config.json");
  EXPECT_EQ(key_of({.config_json = R"({"quantization_config": []})"}), "quantization_config");
  EXPECT_EQ(key_of({.config_json = R"({"text_config": 1})"}), "text_config");
  EXPECT_EQ(key_of({.config_json = "{}", .hf_quant_config = "{\"a\":"}), "hf_quant_config.json");
  EXPECT_EQ(key_of({.config_json = "{}", .hf_quant_config = "{}"}), "quant_algo");
  EXPECT_EQ(key_of({.config_json = "{}", .quant_model_description = "x"}),
            "quant_model_description.json");
}

TEST(QuantConfigTest, TheRefusalOfAnUnknownMethodListsTheSupportedOnes) {
  const absl::Status status = ParseQuantConfig(FilesOf({{"quant_method", "gptq"}})).status();

  for (const internal::QuantFamily& family : internal::QuantFamilies()) {
    EXPECT_NE(status.message().find(family.name), absl::string_view::npos) << family.name;
  }
}

}  // namespace
}  // namespace switchyard
