// The scales of a weight matrix that are stored beside its BF16 values.
//
//   w[n, k] = value[n, k] * tensor * channels[n] * blocks[n / 128, k / 128] * groups[n, k / 128]
//
// Where a layout has no other factor, the values are its codes, which are exact in BF16. A kernel
// then scales sums instead of weights: the sum over each 128 k by the block's and group's scale,
// the sum over all of k by the tensor's and channel's. An empty factor is 1. Plain data;
// thread-safe.
//
// Groups of a multiple of 128 k repeat their scale. Smaller groups have no place here: cutting sums
// more often costs the kernels more than it saves, so their scales are multiplied into the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace switchyard {

inline constexpr std::int64_t kScaleBlock = 128;  // outputs, and k, of a block

// The number of blocks in `size` outputs or k; the last block may be smaller.
constexpr std::int64_t ScaleBlocks(std::int64_t size) {
  return (size + kScaleBlock - 1) / kScaleBlock;
}

// Borrows; `outputs` and `k` are the matrix's.
struct WeightScalesView {
  float tensor = 1;
  std::span<const float> channels{};  // [outputs], or empty
  std::span<const float> blocks{};    // [ScaleBlocks(outputs), ScaleBlocks(k)], or empty
  std::span<const float> groups{};    // [outputs, ScaleBlocks(k)], or empty

  // The scale of the weight at output `n` of a matrix with `k_count` k. Slow: for references and
  // tools.
  [[nodiscard]] float At(std::int64_t n, std::int64_t k, std::int64_t k_count) const {
    float scale = tensor;
    if (!channels.empty()) scale *= channels[static_cast<std::size_t>(n)];
    const auto of_row = [&](std::int64_t row) {
      return static_cast<std::size_t>(row * ScaleBlocks(k_count) + k / kScaleBlock);
    };
    if (!blocks.empty()) scale *= blocks[of_row(n / kScaleBlock)];
    if (!groups.empty()) scale *= groups[of_row(n)];
    return scale;
  }
};

// Owns what a WeightScalesView borrows.
struct WeightScales {
  float tensor = 1;
  std::vector<float> channels{};
  std::vector<float> blocks{};
  std::vector<float> groups{};

  // Valid while this is neither changed nor destroyed.
  [[nodiscard]] WeightScalesView view() const {
    return {.tensor = tensor, .channels = channels, .blocks = blocks, .groups = groups};
  }
  friend bool operator==(const WeightScales&, const WeightScales&) = default;
};

}  // namespace switchyard
