#include "examples/qwen3_moe/kv_cache.h"

namespace switchyard::qwen3_moe {

KvCache::KvCache(const KvShape& shape, std::size_t capacity)
    : shape_(shape),
      capacity_(capacity),
      keys_(shape.layers * shape.kv_heads * KeyPanels()),
      values_(shape.layers * shape.kv_heads * ValuePanels()) {}

void KvCache::Put(std::size_t layer, std::size_t position, std::span<const float> key,
                  std::span<const float> value) {
  const std::size_t dim = shape_.head_dim;
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    const std::size_t index = layer * shape_.kv_heads + head;
    // Keys are columns of the score product and values are its inner index, so the two are packed
    // along different axes.
    Panel* keys = &keys_[index * KeyPanels() + position / kPanelWidth * dim];
    Panel* values = &values_[index * ValuePanels()];
    for (std::size_t i = 0; i < dim; ++i) {
      keys[i].lane[position % kPanelWidth] = key[head * dim + i];
      values[i / kPanelWidth * capacity_ + position].lane[i % kPanelWidth] = value[head * dim + i];
    }
  }
}

const Panel* KvCache::Keys(std::size_t layer, std::size_t kv_head) const {
  return &keys_[(layer * shape_.kv_heads + kv_head) * KeyPanels()];
}

const Panel* KvCache::Values(std::size_t layer, std::size_t kv_head) const {
  return &values_[(layer * shape_.kv_heads + kv_head) * ValuePanels()];
}

}  // namespace switchyard::qwen3_moe
