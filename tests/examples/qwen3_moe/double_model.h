// Qwen3-MoE in double, in loops, one token at a time from the first: an oracle to read, not to run
// fast. Only the routed experts' input is rounded, to BF16, as the system does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/format/bf16.h"
#include "tests/examples/qwen3_moe/random_model.h"

namespace switchyard::qwen3_moe {

class DoubleModel {
 public:
  explicit DoubleModel(const RandomModel& model) : model_(model), o_(model.options()) {}

  // Logits after each of `tokens`.
  [[nodiscard]] std::vector<std::vector<double>> Logits(const std::vector<std::int32_t>& tokens) {
    keys_.assign(o_.layers, {});
    values_.assign(o_.layers, {});
    std::vector<std::vector<double>> logits;
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      std::vector<double> x =
          Row("model.embed_tokens.weight", static_cast<std::size_t>(tokens[position]), o_.hidden);
      for (std::size_t layer = 0; layer < o_.layers; ++layer) {
        Add(x, Attention(layer, position, x));
        const std::string base = absl::StrCat("model.layers.", layer, ".");
        Add(x, Moe(layer, Norm(x, base + "post_attention_layernorm.weight")));
      }
      logits.push_back(Times(o_.tied ? "model.embed_tokens.weight" : "lm_head.weight",
                             Norm(x, "model.norm.weight")));
    }
    return logits;
  }

  // The whole MoE block of `layer` for one row, router included.
  [[nodiscard]] std::vector<double> Moe(std::size_t layer, const std::vector<double>& x) const {
    const std::string base = absl::StrCat("model.layers.", layer, ".mlp.");
    std::vector<double> p = Times(base + "gate.weight", x);
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value);
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&p](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    order.resize(o_.top_k);
    if (o_.normalize) {
      sum = 0;
      for (const std::size_t e : order) sum += p[e];
    }
    std::vector<double> y(x.size());
    for (const std::size_t e : order) {
      std::vector<double> out = Expert(layer, e, x);
      for (double& value : out) value *= p[e] / sum;
      Add(y, out);
    }
    return y;
  }

  // One expert's output for x rounded to BF16, not weighted.
  [[nodiscard]] std::vector<double> Expert(std::size_t layer, std::size_t expert,
                                           std::vector<double> x) const {
    for (double& value : x) value = Bf16ToFloat(FloatToBf16(static_cast<float>(value)));
    const std::string base = absl::StrCat("model.layers.", layer, ".mlp.experts.", expert, ".");
    std::vector<double> gate = Linear(base + "gate_proj", x);
    const std::vector<double> up = Linear(base + "up_proj", x);
    for (std::size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return Linear(base + "down_proj", gate);
  }

 private:
  static void Add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  [[nodiscard]] std::vector<double> Row(const std::string& name, std::size_t row,
                                        std::size_t width) const {
    const auto first = model_.of(name).begin() + static_cast<std::ptrdiff_t>(row * width);
    return {first, first + static_cast<std::ptrdiff_t>(width)};
  }

  // The matrix `name` times x.
  [[nodiscard]] std::vector<double> Times(const std::string& name,
                                          const std::vector<double>& x) const {
    const std::vector<double>& w = model_.of(name);
    std::vector<double> y(w.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += w[r * x.size() + i] * x[i];
    }
    return y;
  }

  // A projection of an expert, with its bias where it has one.
  [[nodiscard]] std::vector<double> Linear(const std::string& name,
                                           const std::vector<double>& x) const {
    std::vector<double> y = Times(name + ".weight", x);
    if (o_.expert_biases) Add(y, model_.of(name + ".bias"));
    return y;
  }

  // Normalizes each piece as wide as the weight.
  [[nodiscard]] std::vector<double> Norm(std::vector<double> x, const std::string& name) const {
    const std::vector<double>& w = model_.of(name);
    for (std::size_t start = 0; start < x.size(); start += w.size()) {
      double squares = 0;
      for (std::size_t i = 0; i < w.size(); ++i) squares += x[start + i] * x[start + i];
      const double root = std::sqrt(squares / static_cast<double>(w.size()) + 1e-5);
      for (std::size_t i = 0; i < w.size(); ++i) x[start + i] *= w[i] / root;
    }
    return x;
  }

  void Turn(std::vector<double>& heads, std::size_t position) const {
    const std::size_t half = o_.head_dim / 2;
    for (std::size_t start = 0; start < heads.size(); start += o_.head_dim) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(o_.head_dim));
        const double a = heads[start + i];
        const double b = heads[start + half + i];
        heads[start + i] = a * std::cos(angle) - b * std::sin(angle);
        heads[start + half + i] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }

  [[nodiscard]] std::vector<double> Attention(std::size_t layer, std::size_t position,
                                              const std::vector<double>& x) {
    const std::string base = absl::StrCat("model.layers.", layer, ".");
    const std::vector<double> normed = Norm(x, base + "input_layernorm.weight");
    std::vector<double> query =
        Norm(Times(base + "self_attn.q_proj.weight", normed), base + "self_attn.q_norm.weight");
    std::vector<double> key =
        Norm(Times(base + "self_attn.k_proj.weight", normed), base + "self_attn.k_norm.weight");
    Turn(query, position);
    Turn(key, position);
    keys_[layer].push_back(key);
    values_[layer].push_back(Times(base + "self_attn.v_proj.weight", normed));
    std::vector<double> out(query.size());
    for (std::size_t head = 0; head < o_.heads; ++head) {
      const std::size_t kv = head / (o_.heads / o_.kv_heads) * o_.head_dim;
      std::vector<double> p(position + 1);
      double sum = 0;
      for (std::size_t j = 0; j <= position; ++j) {
        double score = 0;
        for (std::size_t i = 0; i < o_.head_dim; ++i) {
          score += query[head * o_.head_dim + i] * keys_[layer][j][kv + i];
        }
        sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(o_.head_dim)));
      }
      for (std::size_t j = 0; j <= position; ++j) {
        for (std::size_t i = 0; i < o_.head_dim; ++i) {
          out[head * o_.head_dim + i] += p[j] / sum * values_[layer][j][kv + i];
        }
      }
    }
    return Times(base + "self_attn.o_proj.weight", out);
  }

  const RandomModel& model_;
  const RandomModelOptions& o_;
  std::vector<std::vector<std::vector<double>>> keys_;    // [layer][position]
  std::vector<std::vector<std::vector<double>>> values_;  // [layer][position]
};

}  // namespace switchyard::qwen3_moe
