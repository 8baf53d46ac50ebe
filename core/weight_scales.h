// The scales of a weight matrix that stay apart from its BF16 values.
//
//   w[n, k] = value[n, k] * tensor * channels[n] * blocks[n / 128, k / 128]
//
// Where a layout has no other factor the values are its codes, exact in BF16, and a kernel
// multiplies sums instead of weights: those over all of k by tensor and channel, that of each 128 k
// by its block's. What is empty is 1. Plain data; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace switchyard {

inline constexpr std::int64_t kScaleBlock = 128;  // outputs, and k, of a block

// Blocks that `size` outputs or k take; the last may be smaller.
constexpr std::int64_t ScaleBlocks(std::int64_t size) {
  return (size + kScaleBlock - 1) / kScaleBlock;
}

// Borrows; `outputs` and `k` are the matrix's.
struct WeightScalesView {
  float tensor = 1;
  std::span<const float> channels{};  // [outputs], or empty
  std::span<const float> blocks{};    // [ScaleBlocks(outputs), ScaleBlocks(k)], or empty

  // Of the weight at output `n` of a matrix of `k_count` k. Slow: for references and tools.
  [[nodiscard]] float At(std::int64_t n, std::int64_t k, std::int64_t k_count) const {
    float scale = tensor;
    if (!channels.empty()) scale *= channels[static_cast<std::size_t>(n)];
    if (blocks.empty()) return scale;
    const std::int64_t at = n / kScaleBlock * ScaleBlocks(k_count) + k / kScaleBlock;
    return scale * blocks[static_cast<std::size_t>(at)];
  }
};

struct WeightScales {
  float tensor = 1;
  std::vector<float> channels{};
  std::vector<float> blocks{};

  [[nodiscard]] WeightScalesView view() const {
    return {.tensor = tensor, .channels = channels, .blocks = blocks};
  }
  friend bool operator==(const WeightScales&, const WeightScales&) = default;
};

}  // namespace switchyard
