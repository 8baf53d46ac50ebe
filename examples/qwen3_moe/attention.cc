#include "examples/qwen3_moe/attention.h"

#include <algorithm>
#include <cmath>

namespace switchyard::qwen3_moe {
namespace {

// Subtracts the largest score first, so that no exponential overflows. The sum is in double because
// it can have thousands of terms.
void Softmax(std::span<float> scores, float scale) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& score : scores) {
    score = std::exp((score - largest) * scale);
    sum += static_cast<double>(score);
  }
  const auto inverse = static_cast<float>(1.0 / sum);
  for (float& score : scores) score *= inverse;
}

}  // namespace

void Attend(const KvCache& cache, const AttentionCall& call, std::vector<float>& scratch) {
  const std::size_t dim = cache.shape().head_dim;
  const std::size_t group = call.query.size() / dim / cache.shape().kv_heads;
  const std::size_t positions = call.position + 1;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  // Never shrinks, so that a longer sequence does not allocate in every call.
  scratch.resize(std::max(scratch.size(), group * positions));
  // All query heads of a group share keys and values, so they are the rows of one product.
  for (std::size_t kv_head = 0; kv_head < cache.shape().kv_heads; ++kv_head) {
    const std::size_t first = kv_head * group * dim;
    Multiply({.x = call.query.data() + first,
              .x_stride = dim,
              .rows = group,
              .w = cache.Keys(call.layer, kv_head),
              .panel_stride = dim,
              .inner = dim,
              .columns = positions,
              .y = scratch.data(),
              .y_stride = positions});
    for (std::size_t row = 0; row < group; ++row) {
      Softmax({scratch.data() + row * positions, positions}, scale);
    }
    Multiply({.x = scratch.data(),
              .x_stride = positions,
              .rows = group,
              .w = cache.Values(call.layer, kv_head),
              .panel_stride = cache.value_stride(),
              .inner = positions,
              .columns = dim,
              .y = call.out.data() + first,
              .y_stride = dim});
  }
}

}  // namespace switchyard::qwen3_moe
