#include "examples/qwen3_moe/kv_cache.h"

#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

TEST(KvCacheTest, CountsOnlyWhatItIsToldToCount) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .head_dim = 4};
  const std::vector<float> row(4, 1.0F);
  KvCache cache(shape, 18);

  cache.Put(0, 0, row, row);
  EXPECT_EQ(cache.length(), 0U);
  cache.Advance(5);
  cache.Advance(13);
  EXPECT_EQ(cache.length(), 18U);
  cache.Clear();

  EXPECT_EQ(cache.length(), 0U);
  EXPECT_EQ(cache.capacity(), 18U);
  EXPECT_EQ(cache.shape(), shape);
}

TEST(KvCacheTest, LaysKeysOutByPositionAndValuesByElement) {
  constexpr std::size_t kDim = 20;
  constexpr std::size_t kPositions = 18;
  SeededRng rng(15);
  KvCache cache({.layers = 2, .kv_heads = 2, .head_dim = kDim}, kPositions);
  std::vector<std::vector<float>> keys;    // [layer, position]
  std::vector<std::vector<float>> values;  // [layer, position]

  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t p = 0; p < kPositions; ++p) {
      keys.push_back(testing::GaussianFloats(2 * kDim, 1.0, rng));
      values.push_back(testing::GaussianFloats(2 * kDim, 1.0, rng));
      cache.Put(layer, p, keys.back(), values.back());
    }
  }

  for (std::size_t row = 0; row < keys.size(); ++row) {
    const std::size_t layer = row / kPositions;
    const std::size_t p = row % kPositions;
    for (std::size_t i = 0; i < 2 * kDim; ++i) {
      const std::size_t head = i / kDim;
      const std::size_t d = i % kDim;
      ASSERT_EQ(cache.Keys(layer, head)[p / 16 * kDim + d].lane[p % 16], keys[row][i]);
      ASSERT_EQ(cache.Values(layer, head)[d / 16 * cache.value_stride() + p].lane[d % 16],
                values[row][i]);
    }
  }
}

}  // namespace
}  // namespace switchyard::qwen3_moe
