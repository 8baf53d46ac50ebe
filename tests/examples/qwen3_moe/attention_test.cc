#include "examples/qwen3_moe/attention.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// A cache of random keys and values, which are also kept as they were put.
struct Sequence {
  Sequence(const KvShape& s, std::size_t positions, std::size_t capacity, std::uint64_t seed)
      : shape(s), cache(shape, capacity) {
    SeededRng rng(seed);
    for (std::size_t p = 0; p < positions; ++p) {
      keys.push_back(testing::GaussianFloats(shape.kv_heads * shape.head_dim, 1.0, rng));
      values.push_back(testing::GaussianFloats(shape.kv_heads * shape.head_dim, 1.0, rng));
      cache.Put(shape.layers - 1, p, keys.back(), values.back());
    }
  }

  [[nodiscard]] std::vector<float> AttendAt(std::size_t position,
                                            const std::vector<float>& query) const {
    std::vector<float> out(query.size(), kPoison);
    std::vector<float> scratch(3, kPoison);
    Attend(cache, {.layer = shape.layers - 1, .position = position, .query = query, .out = out},
           scratch);
    return out;
  }

  KvShape shape;
  KvCache cache;
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
};

// Softmax over positions 0..position for each query head, in double.
std::vector<double> Oracle(const Sequence& s, std::size_t position,
                           const std::vector<float>& query) {
  const std::size_t dim = s.shape.head_dim;
  const std::size_t heads = query.size() / dim;
  std::vector<double> out(query.size());
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t kv = h / (heads / s.shape.kv_heads) * dim;
    std::vector<double> p(position + 1);
    double sum = 0;
    for (std::size_t j = 0; j <= position; ++j) {
      double score = 0;
      for (std::size_t i = 0; i < dim; ++i) {
        score += static_cast<double>(query[h * dim + i]) * static_cast<double>(s.keys[j][kv + i]);
      }
      sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(dim)));
    }
    for (std::size_t j = 0; j <= position; ++j) {
      for (std::size_t i = 0; i < dim; ++i) {
        out[h * dim + i] += p[j] / sum * static_cast<double>(s.values[j][kv + i]);
      }
    }
  }
  return out;
}

TEST(AttentionTest, MatchesSoftmaxInDoubleOnRandomShapes) {
  const struct {
    KvShape shape;
    std::size_t group;
  } cases[] = {{{.layers = 1, .kv_heads = 1, .head_dim = 2}, 1},
               {{.layers = 2, .kv_heads = 3, .head_dim = 10}, 2},
               {{.layers = 3, .kv_heads = 2, .head_dim = 32}, 4},
               {{.layers = 1, .kv_heads = 2, .head_dim = 36}, 7}};
  std::uint64_t seed = 100;
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << c.shape.head_dim << " seed " << seed);
    const Sequence sequence(c.shape, 50, 50, seed++);
    SeededRng rng(seed);
    const std::vector<float> query =
        testing::GaussianFloats(c.shape.kv_heads * c.group * c.shape.head_dim, 1.5, rng);
    for (const std::size_t position : {0U, 1U, 15U, 16U, 17U, 49U}) {
      const std::vector<float> out = sequence.AttendAt(position, query);

      const std::vector<double> wanted = Oracle(sequence, position, query);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], wanted[i], 2e-6) << "position " << position << " element " << i;
      }
    }
  }
}

TEST(AttentionTest, ReadsNothingBehindItsPosition) {
  const KvShape shape{.layers = 1, .kv_heads = 2, .head_dim = 8};
  Sequence sequence(shape, 40, 60, 9);
  SeededRng rng(10);
  const std::vector<float> query = testing::GaussianFloats(4 * 8, 1.0, rng);
  const std::vector<float> before = sequence.AttendAt(20, query);

  const std::vector<float> poison(16, kPoison);
  for (std::size_t p = 21; p < 60; ++p) sequence.cache.Put(0, p, poison, poison);

  EXPECT_EQ(sequence.AttendAt(20, query), before);
}

TEST(AttentionTest, DoesNotDependOnTheCapacityOfTheCache) {
  const KvShape shape{.layers = 2, .kv_heads = 2, .head_dim = 16};
  const Sequence small(shape, 33, 33, 11);
  const Sequence large(shape, 33, 1000, 11);
  SeededRng rng(12);
  const std::vector<float> query = testing::GaussianFloats(6 * 16, 1.0, rng);

  EXPECT_EQ(small.AttendAt(32, query), large.AttendAt(32, query));
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .head_dim = 4};
  Sequence sequence(shape, 2, 2, 13);
  const std::vector<float> huge(4, 1e4F);
  const std::vector<float> tiny(4, -1e4F);
  const std::vector<float> value = {1, 2, 3, 4};
  sequence.cache.Put(0, 0, huge, value);
  sequence.cache.Put(0, 1, tiny, tiny);

  EXPECT_EQ(sequence.AttendAt(1, huge), value);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
