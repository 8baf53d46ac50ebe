// Keys and values of one sequence, for all layers, laid out as panels that attention multiplies by.
//
// Positions are written first and counted afterwards: a forward pass puts the rows of its tokens
// behind `length` and advances only when every layer is done. A pass that failed half-way leaves
// the sequence as it was, and the same tokens may be fed again. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "examples/qwen3_moe/panel_matmul.h"

namespace switchyard::qwen3_moe {

struct KvShape {
  std::size_t layers = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

class KvCache {
 public:
  // Takes about 8 * layers * kv_heads * head_dim * capacity bytes at once.
  KvCache(const KvShape& shape, std::size_t capacity);

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  // Tokens that the sequence has, and may have.
  [[nodiscard]] std::size_t length() const { return length_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // Key and value of every KV head of the token at `position` (< capacity): [kv_heads, head_dim].
  void Put(std::size_t layer, std::size_t position, std::span<const float> key,
           std::span<const float> value);
  // Counts `tokens` more positions; length() + tokens <= capacity().
  void Advance(std::size_t tokens) { length_ += tokens; }
  // Empties the sequence.
  void Clear() { length_ = 0; }

  // Keys as a [position, head_dim] weight, head_dim panels from one group of 16 positions to the
  // next.
  [[nodiscard]] const Panel* Keys(std::size_t layer, std::size_t kv_head) const;
  // Values as a [head_dim, position] weight, `value_stride` panels from group to group.
  [[nodiscard]] const Panel* Values(std::size_t layer, std::size_t kv_head) const;
  [[nodiscard]] std::size_t value_stride() const { return capacity_; }

 private:
  [[nodiscard]] std::size_t KeyPanels() const { return PanelsFor(capacity_) * shape_.head_dim; }
  [[nodiscard]] std::size_t ValuePanels() const { return PanelsFor(shape_.head_dim) * capacity_; }

  KvShape shape_;
  std::size_t capacity_;
  std::size_t length_ = 0;
  std::vector<Panel> keys_;    // [layers, kv_heads, capacity / 16, head_dim]
  std::vector<Panel> values_;  // [layers, kv_heads, head_dim / 16, capacity]
};

}  // namespace switchyard::qwen3_moe
