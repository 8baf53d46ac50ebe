// The MoE layer as its definition reads: double, loops, no cleverness, nothing rounded on the way.
// Shares no code with the product but the reading of BF16. Slow.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/format/bf16.h"
#include "core/moe_shape.h"
#include "worker/device/device_backend.h"

namespace switchyard::testing {

inline double Silu(double x) { return x / (1.0 + std::exp(-x)); }

// y[o] = sum over k of w[o, k] * x[k].
inline std::vector<double> MatVec(std::span<const Bf16> w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      sum += static_cast<double>(Bf16ToFloat(w[o * x.size() + k])) * x[k];
    }
    y[o] = sum;
  }
  return y;
}

// The same with the scales of w: y[o] = sum over k of w[o, k] * scale[o, k] * x[k].
inline std::vector<double> MatVec(std::span<const Bf16> w, const WeightScalesView& scales,
                                  const std::vector<double>& x) {
  const auto k_count = static_cast<std::int64_t>(x.size());
  std::vector<double> y(w.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      const float scale =
          scales.At(static_cast<std::int64_t>(o), static_cast<std::int64_t>(k), k_count);
      y[o] +=
          static_cast<double>(Bf16ToFloat(w[o * x.size() + k])) * static_cast<double>(scale) * x[k];
    }
  }
  return y;
}

// down(silu(gate(x)) * up(x)) for one row x [hidden]; no scales, no biases.
inline std::vector<double> ReferenceExpert(const ExpertWeightsView& expert,
                                           std::span<const Bf16> x_row) {
  std::vector<double> x;
  for (const Bf16 bits : x_row) x.push_back(static_cast<double>(Bf16ToFloat(bits)));
  std::vector<double> h = MatVec(expert.gate, x);
  const std::vector<double> up = MatVec(expert.up, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = Silu(h[i]) * up[i];
  return MatVec(expert.down, h);
}

// One routed layer's input. ids: -1 for no expert.
struct ReferenceMoeInput {
  std::span<const Bf16> x;            // [tokens, hidden]
  std::span<const std::int32_t> ids;  // [tokens, top_k]
  std::span<const float> weights;     // [tokens, top_k]
};

// y [tokens, hidden] = sum over k of weights[t, k] * expert ids[t, k] (x[t]).
inline std::vector<double> ReferenceMoeLayer(const MoeShape& shape,
                                             std::span<const ExpertWeightsView> experts,
                                             const ReferenceMoeInput& input) {
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  std::vector<double> y(input.x.size(), 0.0);
  for (std::size_t t = 0; t < input.x.size() / hidden; ++t) {
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::int32_t id = input.ids[t * top_k + k];
      if (id < 0) continue;
      const std::vector<double> row = ReferenceExpert(experts[static_cast<std::size_t>(id)],
                                                      input.x.subspan(t * hidden, hidden));
      const auto weight = static_cast<double>(input.weights[t * top_k + k]);
      for (std::size_t i = 0; i < hidden; ++i) y[t * hidden + i] += weight * row[i];
    }
  }
  return y;
}

}  // namespace switchyard::testing
