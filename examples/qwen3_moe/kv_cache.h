// Keys and values of one sequence for all layers, stored as the panels with which attention
// multiplies, so that no step repacks them.
//
// Positions are written first and counted afterwards: a forward pass puts its rows after `length`
// and advances only when every layer is done. A pass that fails leaves the sequence unchanged, and
// the same tokens may be fed again. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "examples/qwen3_moe/panel_matmul.h"

namespace switchyard::qwen3_moe {

// The sizes that a cache and its decoder must agree on.
struct KvShape {
  std::size_t layers = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// The cache of one sequence.
class KvCache {
 public:
  // Allocates about 8 * layers * kv_heads * head_dim * capacity bytes.
  KvCache(const KvShape& shape, std::size_t capacity);

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  // The number of tokens in the sequence, and the most that it may have.
  [[nodiscard]] std::size_t length() const { return length_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // Stores key and value of all KV heads, [kv_heads, head_dim], for the token at `position`.
  // REQUIRES: position < capacity().
  void Put(std::size_t layer, std::size_t position, std::span<const float> key,
           std::span<const float> value);
  // Adds `tokens` positions to the sequence. REQUIRES: length() + tokens <= capacity().
  void Advance(std::size_t tokens) { length_ += tokens; }
  // Empties the sequence.
  void Clear() { length_ = 0; }

  // The keys as a weight of [position, head_dim], with head_dim panels for each group of 16
  // positions.
  [[nodiscard]] const Panel* Keys(std::size_t layer, std::size_t kv_head) const;
  // The values as a weight of [head_dim, position], with `value_stride` panels for each group.
  [[nodiscard]] const Panel* Values(std::size_t layer, std::size_t kv_head) const;
  [[nodiscard]] std::size_t value_stride() const { return capacity_; }

 private:
  // Panels of one KV head.
  [[nodiscard]] std::size_t KeyPanels() const { return PanelsFor(capacity_) * shape_.head_dim; }
  [[nodiscard]] std::size_t ValuePanels() const { return PanelsFor(shape_.head_dim) * capacity_; }

  KvShape shape_;
  std::size_t capacity_;
  std::size_t length_ = 0;
  std::vector<Panel> keys_;    // [layers, kv_heads, capacity / 16, head_dim]
  std::vector<Panel> values_;  // [layers, kv_heads, head_dim / 16, capacity]
};

}  // namespace switchyard::qwen3_moe
