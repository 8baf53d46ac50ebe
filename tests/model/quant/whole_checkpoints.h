// Small checkpoints with the config.json that their family has: what a folder from a hub looks
// like.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/rng.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

// The checkpoint `name` of tests/model/quant/goldens in `to`, one layer, its sizes under the keys
// of its family.
inline void CopyGolden(const std::string& name, const TempDir& to) {
  for (const auto& file : std::filesystem::directory_iterator(SY_QUANT_GOLDENS "/" + name)) {
    to.Write(file.path().filename().string(), ReadBytes(file.path().string()));
  }
  nlohmann::json config = nlohmann::json::parse(ReadBytes(to.Join("config.json")));
  const std::map<std::string, std::array<const char*, 2>> keys{
      {"deepseek_v3", {"n_routed_experts", "moe_intermediate_size"}},
      {"kimi_k25", {"n_routed_experts", "moe_intermediate_size"}},
      {"mixtral", {"num_local_experts", "intermediate_size"}},
      {"qwen3_moe", {"num_experts", "moe_intermediate_size"}},
      {"qwen3_5_moe", {"num_experts", "moe_intermediate_size"}}};
  const auto& [experts, intermediate] = keys.at(config["model_type"]);
  nlohmann::json sizes = {{"num_hidden_layers", 1},
                          {"hidden_size", config["hidden_size"]},
                          {experts, config["num_experts"]},
                          {intermediate, config["moe_intermediate_size"]},
                          {"num_experts_per_tok", 1}};
  for (const char* key : {"hidden_size", "moe_intermediate_size", "num_experts"}) config.erase(key);
  if (config.contains("text_config")) {
    config["text_config"].update(sizes);
  } else {
    config.update(sizes);
  }
  to.Write("config.json", config.dump());
}

// Random bytes of a tensor. Exponent bits of F32 are left small, so that scales are numbers.
inline WrittenTensor RandomTensor(SeededRng& rng, std::string name, std::string dtype,
                                  std::vector<std::int64_t> shape, std::int64_t value_bytes) {
  std::int64_t bytes = value_bytes;
  for (const std::int64_t dim : shape) bytes *= dim;
  std::string data(static_cast<std::size_t>(bytes), '\0');
  for (char& byte : data) byte = static_cast<char>(rng.Uniform() * 120);
  return {std::move(name), std::move(dtype), std::move(shape), std::move(data)};
}

// The experts of one layer of hidden 256, intermediate 128: FP8 in blocks, or BF16.
inline void AddExperts(SeededRng& rng, const std::string& container, int experts, bool fp8,
                       std::vector<WrittenTensor>& tensors) {
  for (int expert = 0; expert < experts; ++expert) {
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      const bool down = absl::string_view(part) == "down_proj";
      const std::vector<std::int64_t> shape =
          down ? std::vector<std::int64_t>{256, 128} : std::vector<std::int64_t>{128, 256};
      const std::string name = absl::StrCat(container, ".", expert, ".", part, ".weight");
      tensors.push_back(RandomTensor(rng, name, fp8 ? "F8_E4M3" : "BF16", shape, fp8 ? 1 : 2));
      if (!fp8) continue;
      const std::vector<std::int64_t> blocks{shape[0] / 128, shape[1] / 128};
      tensors.push_back(RandomTensor(rng, name + "_scale_inv", "F32", blocks, 4));
    }
  }
}

// As DeepSeek-V3 is laid out: layer 0 dense, layers 1 to `last` in FP8 blocks, and behind them a
// draft in BF16 or FP8; 4 experts.
inline void WriteDeepseek(const TempDir& to, int last, bool draft_in_fp8) {
  SeededRng rng(11);
  std::vector<WrittenTensor> tensors;
  const auto layer = [](int index) { return absl::StrCat("model.layers.", index, ".mlp.experts"); };
  tensors.push_back(RandomTensor(rng, "model.embed_tokens.weight", "BF16", {16, 256}, 2));
  for (int index = 1; index <= last; ++index) AddExperts(rng, layer(index), 4, true, tensors);
  AddExperts(rng, layer(last + 1), 4, draft_in_fp8, tensors);
  to.Write("model.safetensors", SafetensorsBytes(tensors));
  to.Write("config.json", nlohmann::json{{"model_type", "deepseek_v3"},
                                         {"num_hidden_layers", last + 1},
                                         {"hidden_size", 256},
                                         {"moe_intermediate_size", 128},
                                         {"n_routed_experts", 4},
                                         {"num_experts_per_tok", 2},
                                         {"first_k_dense_replace", 1},
                                         {"num_nextn_predict_layers", 1},
                                         {"quantization_config",
                                          {{"quant_method", "fp8"},
                                           {"fmt", "e4m3"},
                                           {"activation_scheme", "dynamic"},
                                           {"weight_block_size", {128, 128}}}}}
                              .dump());
}

// As Qwen3.5 is laid out: 2 layers in FP8 blocks, the draft in a list of its own, the keys in
// text_config.
inline void WriteQwen35(const TempDir& to, int announced_drafts) {
  SeededRng rng(12);
  std::vector<WrittenTensor> tensors;
  for (int index = 0; index < 2; ++index) {
    AddExperts(rng, absl::StrCat("model.language_model.layers.", index, ".mlp.experts"), 4, true,
               tensors);
  }
  AddExperts(rng, "mtp.layers.0.mlp.experts", 4, false, tensors);
  to.Write("model.safetensors", SafetensorsBytes(tensors));
  nlohmann::json text = {
      {"model_type", "qwen3_5_moe_text"}, {"num_hidden_layers", 2}, {"hidden_size", 256},
      {"moe_intermediate_size", 128},     {"num_experts", 4},       {"num_experts_per_tok", 2}};
  if (announced_drafts > 0) text["mtp_num_hidden_layers"] = announced_drafts;
  to.Write("config.json", nlohmann::json{{"model_type", "qwen3_5_moe"},
                                         {"text_config", text},
                                         {"quantization_config",
                                          {{"quant_method", "fp8"},
                                           {"activation_scheme", "dynamic"},
                                           {"weight_block_size", {128, 128}},
                                           {"modules_to_not_convert", {"lm_head"}}}}}
                              .dump());
}

}  // namespace switchyard::testing
