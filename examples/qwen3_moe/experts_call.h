// From routed FP32 rows to calls of the MoE function.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "core/ids.h"
#include "examples/qwen3_moe/moe_call.h"
#include "examples/qwen3_moe/router.h"

namespace switchyard::qwen3_moe {

struct ExpertsCall {
  LayerId layer;
  std::span<const float> x;  // [tokens, hidden], unrounded: what the router saw
  const Routing& routing;    // of x
  std::span<float> y;        // [tokens, hidden]
};

// Rounds x to BF16, here and nowhere else, and calls `path` for at most its max_tokens rows at a
// time. Errors: those of `path`, with the layer and the first row of the call that failed.
absl::Status RunExperts(const ExpertsCall& call, const MoePath& path);

}  // namespace switchyard::qwen3_moe
