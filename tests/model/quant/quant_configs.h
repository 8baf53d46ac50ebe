// Quant configs as real checkpoints write them, for tests to parse whole or spoil.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

#include "model/quant/config/quant_config.h"

namespace switchyard::testing {

using Json = nlohmann::json;

inline Json Fp8BlockConfig() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {128, 128}},
          {"modules_to_not_convert", {"lm_head", "model.layers.0.mlp.gate"}}};
}

inline Json ModelOptFlatConfig() {
  return Json::parse(R"({"config_groups": {"group_0": {
      "input_activations": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16},
      "weights": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16},
      "targets": ["Linear"]}},
    "ignore": ["lm_head", "model.layers.61*", "model.layers.*.mlp.gate"],
    "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.33.0"},
    "quant_algo": "NVFP4", "quant_method": "modelopt"})");
}

inline Json ModelOptFileConfig() {
  return Json::parse(R"({"producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                     "exclude_modules": ["lm_head", "model.layers.61*"]}})");
}

inline Json CompressedConfig(const std::string& format, const Json& weights, const Json& inputs) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", inputs},
              {"output_activations", nullptr}}}}}};
}

inline Json Arguments(int bits, const char* type, const char* strategy, int group_size,
                      const Json& dynamic) {
  return {
      {"num_bits", bits},     {"type", type},
      {"strategy", strategy}, {"group_size", group_size == 0 ? Json(nullptr) : Json(group_size)},
      {"symmetric", true},    {"dynamic", dynamic},
      {"actorder", nullptr},  {"block_structure", nullptr},
      {"observer", "minmax"}, {"observer_kwargs", Json::object()}};
}

inline Json Int8Config() {
  return CompressedConfig("int-quantized", Arguments(8, "int", "channel", 0, false),
                          Arguments(8, "int", "token", 0, true));
}
inline Json Fp8ChannelConfig() {
  return CompressedConfig("float-quantized", Arguments(8, "float", "channel", 0, false),
                          Arguments(8, "float", "token", 0, true));
}
inline Json Fp8CompressedBlockConfig() {
  Json weights = Arguments(8, "float", "block", 0, false);
  weights["block_structure"] = {128, 128};
  return CompressedConfig("float-quantized", weights, Arguments(8, "float", "group", 128, true));
}
inline Json Nvfp4CompressedConfig() {
  return CompressedConfig("nvfp4-pack-quantized", Arguments(4, "float", "tensor_group", 16, false),
                          Arguments(4, "float", "tensor_group", 16, "local"));
}
inline Json KimiConfig() {
  return CompressedConfig("pack-quantized", Arguments(4, "int", "group", 32, false), nullptr);
}

inline Json AwqConfig() {
  return {{"quant_method", "awq"}, {"bits", 4},         {"group_size", 128},
          {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", {"gate"}}};
}

inline Json W4Afp8Config() {
  return {{"quant_method", "w4afp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"weight_block_size", {128, 128}}};
}

// config.json around a quantization_config.
inline QuantConfigFiles FilesOf(const Json& quantization_config) {
  QuantConfigFiles files;
  files.config_json =
      Json{{"model_type", "qwen3_moe"}, {"quantization_config", quantization_config}}.dump();
  return files;
}

inline QuantConfigFiles ModelSlimFiles(const Json& description) {
  QuantConfigFiles files;
  files.config_json = R"({"model_type": "qwen3_moe"})";
  files.quant_model_description = description.dump();
  return files;
}

}  // namespace switchyard::testing
