#include "core/base/histogram.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

double Quantile(const HistogramCounts& counts, double quantile) {
  std::vector<double> bounds;
  for (const std::uint64_t upper : counts.bounds->upper) {
    bounds.push_back(static_cast<double>(upper) / counts.bounds->units_in_one);
  }
  return QuantileOf(bounds, counts.buckets, quantile);
}

TEST(HistogramTest, BoundsGoOneTwoFive) {
  EXPECT_THAT(kCountBounds.upper,
              ElementsAre(1, 2, 5, 10, 20, 50, 100, 200, 500, 1'000, 2'000, 5'000, 10'000, 20'000,
                          50'000, 100'000, 200'000, 500'000, 1'000'000));
  EXPECT_EQ(Duration(kDurationBounds.upper.front()), std::chrono::microseconds(10));
  EXPECT_EQ(Duration(kDurationBounds.upper.back()), std::chrono::seconds(10));
  EXPECT_EQ(Duration(kLongDurationBounds.upper.back()), std::chrono::seconds(1'000));
}

TEST(HistogramTest, ABucketTakesItsUpperBound) {
  Histogram histogram(kCountBounds);
  for (const std::uint64_t value : {0, 1, 2, 3, 5, 1'000'000, 1'000'001}) {
    histogram.Observe(value);
  }
  const HistogramCounts counts = histogram.Counts();
  EXPECT_EQ(counts.buckets[0], 2U);
  EXPECT_EQ(counts.buckets[1], 1U);
  EXPECT_EQ(counts.buckets[2], 2U);
  EXPECT_EQ(counts.buckets[18], 1U);
  EXPECT_EQ(counts.buckets[19], 1U) << "larger than every bound";
  EXPECT_EQ(counts.count(), 7U);
  EXPECT_EQ(counts.sum, 2'000'012U);
}

TEST(HistogramTest, TimesBeforeZeroCountAsZero) {
  HistogramCounts counts;
  counts.Observe(std::chrono::microseconds(-5));
  EXPECT_EQ(counts.buckets[0], 1U);
  EXPECT_EQ(counts.sum, 0U);
}

TEST(HistogramTest, AddsUpCells) {
  HistogramCounts one(&kCountBounds);
  HistogramCounts other(&kCountBounds);
  one.Observe(std::uint64_t{3});
  other.Observe(std::uint64_t{4});
  other.Observe(std::uint64_t{70});
  one.Add(other);
  EXPECT_EQ(one.count(), 3U);
  EXPECT_EQ(one.sum, 77U);
  EXPECT_EQ(one.buckets[2], 2U);
}

// Random durations over all decades: the quantile lies within the bucket of the exact one.
TEST(HistogramTest, QuantilesAreAsGoodAsTheBuckets) {
  SeededRng rng(17);
  HistogramCounts counts;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 5'000; ++i) {
    const double decades = static_cast<double>(rng.Next() % 1'000'000) / 1e6 * 6;
    values.push_back(static_cast<std::uint64_t>(1e4 * std::pow(10, decades)));
    counts.Observe(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double quantile : {0.01, 0.5, 0.9, 0.99}) {
    const std::uint64_t exact = values[static_cast<std::size_t>(quantile * 5'000)];
    const double seconds = static_cast<double>(exact) / 1e9;
    const double found = Quantile(counts, quantile);
    EXPECT_GE(found, seconds / 2.6) << quantile;
    EXPECT_LE(found, seconds * 2.6) << quantile;
  }
}

TEST(HistogramTest, QuantilesAtTheEdges) {
  HistogramCounts counts;
  EXPECT_TRUE(std::isnan(Quantile(counts, 0.5)));
  counts.Observe(std::chrono::hours(1));
  EXPECT_TRUE(std::isinf(Quantile(counts, 0.5))) << "above all bounds";
  HistogramCounts even(&kCountBounds);
  for (std::uint64_t i = 0; i < 10; ++i) even.Observe(std::uint64_t{4});  // in (2, 5]
  EXPECT_THAT(Quantile(even, 0.5), DoubleNear(3.5, 1e-9));
}

TEST(HistogramTest, LosesNothingBetweenThreads) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram, t] {
      for (int i = 0; i < 10'000; ++i) histogram.Observe(std::chrono::microseconds(i * (t + 1)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Counts().count(), 40'000U);
  EXPECT_EQ(histogram.Counts().sum, std::uint64_t{10} * 1'000 * (10'000 * 9'999ULL / 2));
}

}  // namespace
}  // namespace switchyard
