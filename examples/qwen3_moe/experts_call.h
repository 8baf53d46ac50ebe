// Sends routed FP32 rows to the MoE function.
#pragma once

#include <span>

#include "absl/status/status.h"

#include "core/ids.h"
#include "examples/qwen3_moe/moe_call.h"
#include "examples/qwen3_moe/router.h"

namespace switchyard::qwen3_moe {

// One layer for a batch of any size.
struct ExpertsCall {
  LayerId layer;
  std::span<const float> x;  // [tokens, hidden], unrounded, as the router got it
  const Routing& routing;    // of x
  std::span<float> y;        // [tokens, hidden]
};

// Rounds x to BF16 and calls `path` for at most max_tokens rows at a time. This is the only place
// that rounds, so the reference and a deployment get equal inputs. Errors: those of `path`, with
// the layer and the rows of the call that failed.
absl::Status RunExperts(const ExpertsCall& call, const MoePath& path);

}  // namespace switchyard::qwen3_moe
