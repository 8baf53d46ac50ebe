// A small random Qwen3-MoE checkpoint, written to disk, and the same model once more in double and
// loops, with no cleverness: what the decoder and the reference MoE are held against.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::qwen3_moe {

struct RandomModelOptions {
  std::uint64_t seed = 1;
  std::size_t layers = 2;
  std::size_t hidden = 24;
  std::size_t heads = 6;
  std::size_t kv_heads = 3;
  std::size_t head_dim = 10;
  std::size_t vocab = 37;
  std::size_t experts = 5;
  std::size_t top_k = 2;
  std::size_t moe_intermediate = 14;
  std::size_t max_positions = 64;
  bool tied = false;
  bool normalize = true;
  // False: the file has no routed expert at all.
  bool with_experts = true;
  bool expert_biases = false;
  // Put into config.json in place of the empty one, for example ",\"attention_bias\": true".
  std::string more_config = "";
};

// Row-major weights by name, as stored (BF16 values).
using Weights = std::map<std::string, std::vector<double>>;

class RandomModel {
 public:
  explicit RandomModel(const RandomModelOptions& options) : options_(options) {
    SeededRng rng(options.seed);
    Add("model.embed_tokens.weight", options.vocab, options.hidden, 1.0, rng);
    Add("model.norm.weight", options.hidden, 0, 1.0, rng);
    if (!options.tied) Add("lm_head.weight", options.vocab, options.hidden, 0.3, rng);
    for (std::size_t layer = 0; layer < options.layers; ++layer) AddLayer(layer, rng);
    dir_.Write("config.json", Config());
    Rewrite();
  }

  [[nodiscard]] const RandomModelOptions& options() const { return options_; }
  [[nodiscard]] const std::string& dir() const { return dir_.path(); }
  [[nodiscard]] const std::vector<double>& of(const std::string& name) const {
    return weights_.at(name);
  }
  [[nodiscard]] std::vector<testing::WrittenTensor>& tensors() { return tensors_; }
  // Writes model.safetensors from tensors().
  void Rewrite() { dir_.Write("model.safetensors", testing::SafetensorsBytes(tensors_)); }

 private:
  void AddLayer(std::size_t layer, Rng& rng) {
    const std::string base = absl::StrCat("model.layers.", layer, ".");
    const std::size_t hidden = options_.hidden;
    const std::size_t query = options_.heads * options_.head_dim;
    const std::size_t kv = options_.kv_heads * options_.head_dim;
    Add(base + "input_layernorm.weight", hidden, 0, 1.0, rng);
    Add(base + "self_attn.q_proj.weight", query, hidden, 0.2, rng);
    Add(base + "self_attn.k_proj.weight", kv, hidden, 0.2, rng);
    Add(base + "self_attn.v_proj.weight", kv, hidden, 0.2, rng);
    Add(base + "self_attn.o_proj.weight", hidden, query, 0.2, rng);
    Add(base + "self_attn.q_norm.weight", options_.head_dim, 0, 1.0, rng);
    Add(base + "self_attn.k_norm.weight", options_.head_dim, 0, 1.0, rng);
    Add(base + "post_attention_layernorm.weight", hidden, 0, 1.0, rng);
    Add(base + "mlp.gate.weight", options_.experts, hidden, 0.5, rng);
    if (!options_.with_experts) return;
    for (std::size_t e = 0; e < options_.experts; ++e) {
      const std::string expert = absl::StrCat(base, "mlp.experts.", e, ".");
      Add(expert + "gate_proj.weight", options_.moe_intermediate, hidden, 0.3, rng);
      Add(expert + "up_proj.weight", options_.moe_intermediate, hidden, 0.3, rng);
      Add(expert + "down_proj.weight", hidden, options_.moe_intermediate, 0.3, rng);
      if (!options_.expert_biases) continue;
      Add(expert + "gate_proj.bias", options_.moe_intermediate, 0, 0.5, rng);
      Add(expert + "up_proj.bias", options_.moe_intermediate, 0, 0.5, rng);
      Add(expert + "down_proj.bias", hidden, 0, 0.5, rng);
    }
  }

  // columns 0: a vector.
  void Add(const std::string& name, std::size_t rows, std::size_t columns, double deviation,
           Rng& rng) {
    const std::size_t count = columns == 0 ? rows : rows * columns;
    const std::vector<float> values = testing::GaussianFloats(count, deviation, rng);
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(rows)};
    if (columns != 0) shape.push_back(static_cast<std::int64_t>(columns));
    tensors_.push_back(testing::Bf16Tensor(name, shape, values));
    for (const float value : values) {
      weights_[name].push_back(static_cast<double>(Bf16ToFloat(FloatToBf16(value))));
    }
  }

  [[nodiscard]] std::string Config() const {
    return absl::StrCat(
        R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": )",
        options_.hidden, R"(, "num_hidden_layers": )", options_.layers,
        R"(, "num_attention_heads": )", options_.heads, R"(, "num_key_value_heads": )",
        options_.kv_heads, R"(, "head_dim": )", options_.head_dim, R"(, "vocab_size": )",
        options_.vocab, R"(, "num_experts": )", options_.experts, R"(, "num_experts_per_tok": )",
        options_.top_k, R"(, "moe_intermediate_size": )", options_.moe_intermediate,
        R"(, "intermediate_size": 8, "max_position_embeddings": )", options_.max_positions,
        R"(, "rope_theta": 100.0, "rms_norm_eps": 1e-5, "norm_topk_prob": )",
        options_.normalize ? "true" : "false", R"(, "tie_word_embeddings": )",
        options_.tied ? "true" : "false", options_.more_config, "}");
  }

  RandomModelOptions options_;
  testing::TempDir dir_;
  std::vector<testing::WrittenTensor> tensors_;
  Weights weights_;
};

}  // namespace switchyard::qwen3_moe
