// The decoder's interface to a MoE layer: a function that the caller provides.
//
// The decoder routes; the function runs the routed experts, for example in this process or through
// a deployment. The decoder does not depend on the client because of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"

#include "core/format/bf16.h"
#include "core/ids.h"

namespace switchyard::qwen3_moe {

// One layer for one batch. The spans are only valid during the call.
struct MoeCall {
  LayerId layer;
  std::size_t tokens = 0;             // >= 1
  std::size_t top_k = 0;              // the model's
  std::span<const Bf16> x;            // [tokens, hidden], rounded to BF16 after routing
  std::span<const std::int32_t> ids;  // [tokens, top_k], distinct in a row
  std::span<const float> weights;     // [tokens, top_k]
  std::span<float> y;                 // [tokens, hidden], every element written on success
};

// The type is a std::function, so that a test can pass a lambda and count or change calls.
// Computes y[t] = sum over k of weights[t, k] * expert(ids[t, k])(x[t]). After an error, y is
// undefined and the same call may be repeated.
using MoeFn = std::function<absl::Status(const MoeCall&)>;

// A function for the routed experts and the largest batch that it accepts.
struct MoePath {
  MoeFn run;
  std::size_t max_tokens = 0;  // >= 1
};

}  // namespace switchyard::qwen3_moe
