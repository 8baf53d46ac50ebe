// A small BF16 checkpoint of each model family whose experts can be deployed: config.json and
// tensors as a folder from a hub has them, with the dense layers, shared experts and drafts that
// the service leaves to others or takes along. Weights are random.
#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/ids.h"
#include "core/moe_shape.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

struct FamilyLayer {
  LayerId layer;          // as plans number it: drafts follow the others
  std::string container;  // of its experts
};

struct FamilyCheckpoint {
  std::string name;  // of tests
  nlohmann::json config = {};
  MoeShape shape;
  std::int32_t layers = 0;  // without drafts
  std::int32_t drafts = 0;
  std::vector<FamilyLayer> moe_layers = {};  // ascending
  bool packed = false;  // all experts of a layer in one tensor, as transformers 5
  std::array<const char*, 3> parts{"gate_proj", "up_proj", "down_proj"};  // by Projection
  std::vector<std::string> dense = {};                                    // MLPs beside the experts

  [[nodiscard]] RandomExpert Expert(LayerId layer, std::int32_t expert) const {
    return {shape, 1000 * static_cast<std::uint64_t>(layer.value) +
                       static_cast<std::uint64_t>(expert) + 7};
  }
};

inline void PrintTo(const FamilyCheckpoint& family, std::ostream* out) { *out << family.name; }

// As DeepSeek-V3: two dense layers first, the draft in the list of the others.
inline FamilyCheckpoint DeepseekFamily() {
  FamilyCheckpoint family{.name = "deepseek_v3", .shape = {64, 48, 6, 3}, .layers = 4, .drafts = 1};
  family.config = {{"model_type", "deepseek_v3"},   {"architectures", {"DeepseekV3ForCausalLM"}},
                   {"num_hidden_layers", 4},        {"hidden_size", 64},
                   {"hidden_act", "silu"},          {"intermediate_size", 96},
                   {"moe_intermediate_size", 48},   {"n_routed_experts", 6},
                   {"n_shared_experts", 1},         {"num_experts_per_tok", 3},
                   {"first_k_dense_replace", 2},    {"moe_layer_freq", 1},
                   {"num_nextn_predict_layers", 1}, {"routed_scaling_factor", 2.5},
                   {"torch_dtype", "bfloat16"}};
  for (const int layer : {2, 3, 4}) {
    family.moe_layers.push_back(
        {LayerId{layer}, absl::StrCat("model.layers.", layer, ".mlp.experts")});
    family.dense.push_back(absl::StrCat("model.layers.", layer, ".mlp.shared_experts"));
  }
  family.dense.insert(family.dense.end(), {"model.layers.0.mlp", "model.layers.1.mlp"});
  return family;
}

// As Kimi-K2.5: DeepSeek's keys in text_config, one dense layer, no draft.
inline FamilyCheckpoint KimiFamily() {
  FamilyCheckpoint family{.name = "kimi_k25", .shape = {48, 32, 7, 2}, .layers = 3};
  family.config = {{"model_type", "kimi_k25"},
                   {"architectures", {"KimiK25ForConditionalGeneration"}},
                   {"vision_config", {{"hidden_size", 24}}},
                   {"text_config",
                    {{"model_type", "kimi_k2"},
                     {"num_hidden_layers", 3},
                     {"hidden_size", 48},
                     {"hidden_act", "silu"},
                     {"moe_intermediate_size", 32},
                     {"n_routed_experts", 7},
                     {"num_experts_per_tok", 2},
                     {"first_k_dense_replace", 1},
                     {"num_nextn_predict_layers", 0}}}};
  for (const int layer : {1, 2}) {
    family.moe_layers.push_back(
        {LayerId{layer}, absl::StrCat("language_model.model.layers.", layer, ".mlp.experts")});
  }
  family.dense = {"language_model.model.layers.0.mlp"};
  return family;
}

// As Qwen3.5 since version 5 of transformers: text_config, packed experts, a draft apart.
inline FamilyCheckpoint Qwen35Family() {
  FamilyCheckpoint family{
      .name = "qwen3_5_moe", .shape = {64, 32, 8, 4}, .layers = 2, .drafts = 1, .packed = true};
  family.parts = {"gate_up_proj", "gate_up_proj", "down_proj"};
  family.config = {{"model_type", "qwen3_5_moe"},
                   {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                   {"dtype", "bfloat16"},
                   {"text_config",
                    {{"model_type", "qwen3_5_moe_text"},
                     {"num_hidden_layers", 2},
                     {"hidden_size", 64},
                     {"hidden_act", "silu"},
                     {"moe_intermediate_size", 32},
                     {"shared_expert_intermediate_size", 32},
                     {"num_experts", 8},
                     {"num_experts_per_tok", 4},
                     {"mlp_only_layers", nlohmann::json::array()},
                     {"mtp_num_hidden_layers", 1}}}};
  for (const int layer : {0, 1}) {
    const std::string mlp = absl::StrCat("model.language_model.layers.", layer, ".mlp.");
    family.moe_layers.push_back({LayerId{layer}, mlp + "experts"});
    family.dense.push_back(mlp + "shared_expert");
  }
  family.moe_layers.push_back({LayerId{2}, "mtp.layers.0.mlp.experts"});
  return family;
}

// As Qwen3-Next: Qwen3's names, the draft apart.
inline FamilyCheckpoint Qwen3NextFamily() {
  FamilyCheckpoint family{.name = "qwen3_next", .shape = {32, 48, 5, 2}, .layers = 2, .drafts = 1};
  family.config = {{"model_type", "qwen3_next"},   {"architectures", {"Qwen3NextForCausalLM"}},
                   {"num_hidden_layers", 2},       {"hidden_size", 32},
                   {"moe_intermediate_size", 48},  {"num_experts", 5},
                   {"num_experts_per_tok", 2},     {"decoder_sparse_step", 1},
                   {"num_nextn_predict_layers", 1}};
  for (const int layer : {0, 1}) {
    family.moe_layers.push_back(
        {LayerId{layer}, absl::StrCat("model.layers.", layer, ".mlp.experts")});
  }
  family.moe_layers.push_back({LayerId{2}, "mtp.layers.0.mlp.experts"});
  return family;
}

// As Mixtral: experts in every layer, w1 is gate, w3 up, w2 down.
inline FamilyCheckpoint MixtralFamily() {
  FamilyCheckpoint family{.name = "mixtral", .shape = {64, 80, 4, 2}, .layers = 2};
  family.parts = {"w1", "w3", "w2"};
  family.config = {{"model_type", "mixtral"},      {"architectures", {"MixtralForCausalLM"}},
                   {"num_hidden_layers", 2},       {"hidden_size", 64},
                   {"hidden_act", "silu"},         {"intermediate_size", 80},
                   {"num_local_experts", 4},       {"num_experts_per_tok", 2},
                   {"router_aux_loss_coef", 0.02}, {"torch_dtype", "bfloat16"}};
  for (const int layer : {0, 1}) {
    family.moe_layers.push_back(
        {LayerId{layer}, absl::StrCat("model.layers.", layer, ".block_sparse_moe.experts")});
  }
  return family;
}

inline std::vector<FamilyCheckpoint> FamilyCheckpoints() {
  return {DeepseekFamily(), KimiFamily(), Qwen35Family(), Qwen3NextFamily(), MixtralFamily()};
}

inline WrittenTensor ExpertTensor(std::string name, std::vector<std::int64_t> shape,
                                  const std::vector<Bf16>& values) {
  return {std::move(name), "BF16", std::move(shape), BytesOf(std::span<const Bf16>(values))};
}

// The experts of one layer, a tensor for each projection.
inline void AddFamilyExperts(const FamilyCheckpoint& family, const FamilyLayer& at,
                             std::vector<WrittenTensor>& tensors) {
  const MoeShape& shape = family.shape;
  for (std::int32_t e = 0; e < shape.experts; ++e) {
    const RandomExpert expert = family.Expert(at.layer, e);
    const auto name = [&](std::size_t projection) {
      return absl::StrCat(at.container, ".", e, ".", family.parts[projection], ".weight");
    };
    tensors.push_back(ExpertTensor(name(0), {shape.intermediate, shape.hidden}, expert.gate));
    tensors.push_back(ExpertTensor(name(1), {shape.intermediate, shape.hidden}, expert.up));
    tensors.push_back(ExpertTensor(name(2), {shape.hidden, shape.intermediate}, expert.down));
  }
}

// The same in two tensors: gate and up of an expert follow each other.
inline void AddPackedExperts(const FamilyCheckpoint& family, const FamilyLayer& at,
                             std::vector<WrittenTensor>& tensors) {
  const MoeShape& shape = family.shape;
  std::vector<Bf16> gate_up;
  std::vector<Bf16> down;
  for (std::int32_t e = 0; e < shape.experts; ++e) {
    const RandomExpert expert = family.Expert(at.layer, e);
    gate_up.insert(gate_up.end(), expert.gate.begin(), expert.gate.end());
    gate_up.insert(gate_up.end(), expert.up.begin(), expert.up.end());
    down.insert(down.end(), expert.down.begin(), expert.down.end());
  }
  tensors.push_back(ExpertTensor(at.container + ".gate_up_proj",
                                 {shape.experts, 2 * shape.intermediate, shape.hidden}, gate_up));
  tensors.push_back(ExpertTensor(at.container + ".down_proj",
                                 {shape.experts, shape.hidden, shape.intermediate}, down));
}

// config.json and model.safetensors.
inline void WriteFamily(const FamilyCheckpoint& family, const TempDir& to) {
  std::vector<WrittenTensor> tensors;
  SeededRng rng(5);
  for (const std::string& mlp : family.dense) {
    tensors.push_back(
        ExpertTensor(mlp + ".gate_proj.weight", {16, family.shape.hidden},
                     GaussianBf16(static_cast<std::size_t>(16 * family.shape.hidden), 1.0, rng)));
  }
  for (const FamilyLayer& at : family.moe_layers) {
    if (family.packed) {
      AddPackedExperts(family, at, tensors);
    } else {
      AddFamilyExperts(family, at, tensors);
    }
  }
  to.Write("model.safetensors", SafetensorsBytes(tensors));
  to.Write("config.json", family.config.dump());
}

}  // namespace switchyard::testing
