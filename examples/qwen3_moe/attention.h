// Causal grouped-query attention of one token over the cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "examples/qwen3_moe/kv_cache.h"

namespace switchyard::qwen3_moe {

struct AttentionCall {
  std::size_t layer = 0;
  // The token's; keys and values of positions 0..position are in the cache.
  std::size_t position = 0;
  std::span<const float> query;  // [heads, head_dim]; heads is a multiple of the cache's kv_heads
  std::span<float> out;          // [heads, head_dim]
};

// Query head h reads KV head h / (heads / kv_heads); scores are scaled by 1 / sqrt(head_dim).
// `scratch` grows to (heads / kv_heads) * (position + 1) floats and may be kept between calls. The
// result depends on positions 0..position alone. Thread-safe for callers with scratch of their own.
void Attend(const KvCache& cache, const AttentionCall& call, std::vector<float>& scratch);

}  // namespace switchyard::qwen3_moe
