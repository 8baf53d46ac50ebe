// Small BF16 checkpoints with all that stands around experts, and what calibration saw of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/rng.h"
#include "model/quant/config/amax_file.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

struct CheckpointShape {
  std::string model_type = "qwen3_moe";
  int layers = 3;  // layer 1 is dense
  int experts = 4;
  std::int64_t hidden = 128;
  std::int64_t intermediate = 256;
  bool packed = false;
};

inline WrittenTensor RandomBf16(const std::string& name, std::vector<std::int64_t> shape,
                                SeededRng& rng) {
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((rng.Uniform() - 0.5001) * 0.2);
  return Bf16Tensor(name, std::move(shape), values);
}

inline std::vector<WrittenTensor> LayerTensors(const CheckpointShape& shape, int layer,
                                               SeededRng& rng) {
  const std::string base = absl::StrCat("model.layers.", layer, ".");
  const std::int64_t h = shape.hidden;
  const std::int64_t i = shape.intermediate;
  std::vector<WrittenTensor> out;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> dims) {
    out.push_back(RandomBf16(base + name, std::move(dims), rng));
  };
  add("input_layernorm.weight", {h});
  add("self_attn.q_proj.weight", {h, h});
  add("self_attn.o_proj.weight", {h, h});
  if (layer == 1) {
    for (const char* part : {"gate_proj", "up_proj"})
      add(absl::StrCat("mlp.", part, ".weight"), {i, h});
    add("mlp.down_proj.weight", {h, i});
    return out;
  }
  add("mlp.gate.weight", {shape.experts, h});
  add("mlp.shared_expert.up_proj.weight", {i, h});
  add("mlp.shared_expert_gate.weight", {1, h});
  if (shape.packed) {
    add("mlp.experts.gate_up_proj", {shape.experts, 2 * i, h});
    add("mlp.experts.down_proj", {shape.experts, h, i});
    return out;
  }
  for (int expert = 0; expert < shape.experts; ++expert) {
    const std::string name = absl::StrCat("mlp.experts.", expert, ".");
    add(name + "gate_proj.weight", {i, h});
    add(name + "up_proj.weight", {i, h});
    add(name + "down_proj.weight", {h, i});
  }
  return out;
}

inline std::vector<WrittenTensor> CheckpointTensorsOf(const CheckpointShape& shape,
                                                      std::uint64_t seed) {
  SeededRng rng(seed);
  std::vector<WrittenTensor> tensors{
      RandomBf16("model.embed_tokens.weight", {32, shape.hidden}, rng)};
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (WrittenTensor& tensor : LayerTensors(shape, layer, rng)) {
      tensors.push_back(std::move(tensor));
    }
  }
  tensors.push_back(RandomBf16("model.norm.weight", {shape.hidden}, rng));
  tensors.push_back(F32Tensor("model.odd_one", {3}, std::vector<float>{1.5F, -2.25F, 1e-30F}));
  return tensors;
}

inline std::string ConfigOf(const CheckpointShape& shape) {
  return absl::StrCat(
      "{\n  \"model_type\": \"", shape.model_type, "\",\n  \"zebra\": 1e-06,\n",
      "  \"num_hidden_layers\": ", shape.layers, ",\n  \"hidden_size\": ", shape.hidden,
      ",\n  \"num_experts\": ", shape.experts,
      ",\n  \"moe_intermediate_size\": ", shape.intermediate, ",\n  \"alpha\": [1, 2]\n}\n");
}

// config.json, model.safetensors, a tokenizer, and files that do not come along.
inline std::vector<WrittenTensor> WriteCheckpoint(const TempDir& dir, const CheckpointShape& shape,
                                                  std::uint64_t seed) {
  std::vector<WrittenTensor> tensors = CheckpointTensorsOf(shape, seed);
  dir.Write("config.json", ConfigOf(shape));
  dir.Write("model.safetensors", SafetensorsBytes(tensors));
  dir.Write("tokenizer.json", "{\"tokens\": [\"\xc3\xa9\"]}");
  dir.Write("merges.txt", "a b\n");
  dir.Write("README.md", "about it\n");
  return tensors;
}

// Every magnitude another one, for the layers that have experts.
inline AmaxTable RandomAmax(const std::vector<int>& layers, int experts, std::uint64_t seed) {
  SeededRng rng(seed);
  AmaxTable table;
  for (const int layer : layers) {
    LayerAmax row{layer, {}};
    for (int expert = 0; expert < experts; ++expert) {
      row.experts.push_back({static_cast<float>(1 + 20 * rng.Uniform()),
                             static_cast<float>(0.5 + 3 * rng.Uniform())});
    }
    table.layers.push_back(row);
  }
  return table;
}

}  // namespace switchyard::testing
