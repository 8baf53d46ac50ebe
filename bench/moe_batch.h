// A batch of tokens with a router's answer, of random values.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/format/bf16.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/rng.h"
#include "worker/source/p2p/step.h"

namespace switchyard::bench {

struct MoeBatch {
  MoeShape shape;
  std::int32_t tokens = 0;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<Bf16> y;

  MoeBatch(const MoeShape& of, std::int32_t count, std::uint64_t seed) : shape(of), tokens(count) {
    SeededRng rng(seed);
    const auto cells = static_cast<std::size_t>(count) * static_cast<std::size_t>(of.hidden);
    for (std::size_t i = 0; i < cells; ++i) {
      x.push_back(FloatToBf16(static_cast<float>(rng.Uniform() - 0.5)));
    }
    y.resize(cells);
    std::vector<std::int32_t> pool(static_cast<std::size_t>(of.experts));
    std::iota(pool.begin(), pool.end(), 0);
    for (std::int32_t t = 0; t < count; ++t) {
      for (std::int32_t k = 0; k < of.top_k; ++k) {
        const auto at = static_cast<std::size_t>(k);
        std::swap(pool[at], pool[at + rng.Below(pool.size() - at)]);
        ids.push_back(pool[at]);
        weights.push_back(static_cast<float>(0.05 + rng.Uniform()));
      }
    }
  }

  // For a session whose y is BF16.
  [[nodiscard]] StepRequest Request(LayerId layer) {
    return {.layer = layer,
            .tokens = tokens,
            .x = x.data(),
            .x_stride = shape.hidden,
            .ids = ids.data(),
            .ids_stride = shape.top_k,
            .weights = weights.data(),
            .weights_stride = shape.top_k,
            .top_k = shape.top_k,
            .y = y.data(),
            .y_stride = shape.hidden};
  }
};

}  // namespace switchyard::bench
