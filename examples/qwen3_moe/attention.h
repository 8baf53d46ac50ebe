// Causal grouped-query attention of one token over the KV cache. Tokens are processed one by one,
// so that a prompt gives the same bits whole or in parts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "examples/qwen3_moe/kv_cache.h"

namespace switchyard::qwen3_moe {

// One layer for one token.
struct AttentionCall {
  std::size_t layer = 0;
  // Position of the token. The cache must have keys and values of positions 0..position.
  std::size_t position = 0;
  std::span<const float> query;  // [heads, head_dim]; heads is a multiple of the cache's kv_heads
  std::span<float> out;          // [heads, head_dim]
};

// Query head h reads KV head h / (heads / kv_heads); scores are scaled by 1 / sqrt(head_dim).
// `scratch` grows to (heads / kv_heads) * (position + 1) floats; keep it between calls to avoid
// allocations. The result only depends on positions 0..position. Thread-safe if each caller has its
// own scratch.
void Attend(const KvCache& cache, const AttentionCall& call, std::vector<float>& scratch);

}  // namespace switchyard::qwen3_moe
