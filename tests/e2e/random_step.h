// A step of random rows for one MoE layer.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "client/moe_session.h"
#include "core/moe_shape.h"
#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::testing {

// With its memory; y is poisoned. Each row goes to `top_k` experts that follow each other.
struct RandomStep {
  RandomStep(const MoeShape& shape, std::int32_t token_count, std::uint64_t seed)
      : tokens(token_count), hidden(shape.hidden), top_k(shape.top_k) {
    SeededRng rng(seed);
    x = GaussianBf16(static_cast<std::size_t>(tokens * hidden), 1.0, rng);
    for (std::int32_t t = 0; t < tokens; ++t) {
      const auto first =
          static_cast<std::int32_t>(rng.Below(static_cast<std::uint64_t>(shape.experts)));
      for (std::int32_t k = 0; k < top_k; ++k) {
        ids.push_back((first + k) % shape.experts);
        weights.push_back(static_cast<float>(rng.Uniform()) + 0.25F);
      }
    }
    Poison();
  }
  void Poison() { y.assign(x.size(), std::numeric_limits<float>::quiet_NaN()); }
  StepRequest Request(LayerId layer) {
    return RequestOf({.layer = layer,
                      .hidden = hidden,
                      .top_k = top_k,
                      .x = x,
                      .ids = ids,
                      .weights = weights,
                      .y = y.data()});
  }

  std::int32_t tokens;
  std::int32_t hidden;
  std::int32_t top_k;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

// Submits and waits.
inline absl::Status RunStep(MoeSession& session, RandomStep& step, LayerId layer) {
  step.Poison();
  const auto ticket = session.Submit(step.Request(layer));
  if (!ticket.ok()) return ticket.status();
  return session.Wait(*ticket);
}

}  // namespace switchyard::testing
