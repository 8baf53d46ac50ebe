// A small, complete Qwen3-MoE checkpoint for tests to write whole or spoil.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/rng.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

// 2 layers, 3 experts of [hidden 4, intermediate 6], top-2.
inline std::string SmallConfig() {
  return R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 2, "vocab_size": 8, "max_position_embeddings": 16, "num_experts": 3,
    "num_experts_per_tok": 2, "moe_intermediate_size": 6, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16"})";
}

// All expert tensors, random BF16.
inline std::vector<WrittenTensor> SmallExperts(std::uint64_t seed) {
  SeededRng rng(seed);
  std::vector<WrittenTensor> tensors;
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 3; ++expert) {
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        std::vector<float> values(24);
        for (float& value : values) value = static_cast<float>(rng.Uniform() * 2 - 1);
        const bool down = absl::string_view(projection) == "down_proj";
        tensors.push_back(Bf16Tensor(
            absl::StrCat("model.layers.", layer, ".mlp.experts.", expert, ".", projection,
                         ".weight"),
            down ? std::vector<std::int64_t>{4, 6} : std::vector<std::int64_t>{6, 4}, values));
      }
    }
  }
  return tensors;
}

inline WrittenTensor& TensorNamed(std::vector<WrittenTensor>& tensors, absl::string_view name) {
  for (WrittenTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << std::string(name);
  return tensors.front();
}

// model.safetensors and config.json.
inline void WriteSmallCheckpoint(const TempDir& dir, const std::vector<WrittenTensor>& tensors) {
  dir.Write("config.json", SmallConfig());
  dir.Write("model.safetensors", SafetensorsBytes(tensors));
}

// The same tensors in two shards a.safetensors (the first `split`) and b.safetensors, an index that
// fits them, and config.json.
inline void WriteShardedCheckpoint(const TempDir& dir, const std::vector<WrittenTensor>& tensors,
                                   std::size_t split) {
  std::vector<std::string> lines;
  std::size_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    lines.push_back(
        absl::StrCat("\"", tensors[i].name, "\": \"", i < split ? "a" : "b", ".safetensors\""));
    total += tensors[i].bytes.size();
  }
  dir.Write("config.json", SmallConfig());
  dir.Write("a.safetensors", SafetensorsBytes({tensors.begin(), tensors.begin() + split}));
  dir.Write("b.safetensors", SafetensorsBytes({tensors.begin() + split, tensors.end()}));
  dir.Write("model.safetensors.index.json",
            absl::StrCat("{\"metadata\": {\"total_size\": ", total, "}, \"weight_map\": {",
                         absl::StrJoin(lines, ", "), "}}"));
}

// An index of one shard `file`, which holds the tensor "c" of one byte. `total`: the contents of
// its metadata.
inline void WriteIndexed(const TempDir& dir, const std::string& index, const std::string& file,
                         absl::string_view total) {
  dir.Write(file, SafetensorsBytes({{"c", "U8", {1}, "z"}}));
  dir.Write(index, absl::StrCat(R"({"metadata": {)", total, R"(}, "weight_map": {"c": ")", file,
                                R"("}})"));
}

// The header's length and the header, followed by `data`.
inline std::string FileOf(absl::string_view header, absl::string_view data) {
  const std::uint64_t length = header.size();
  return absl::StrCat(BytesOf(std::span<const std::uint64_t>(&length, 1)), header, data);
}

}  // namespace switchyard::testing
