// Counts of values in buckets whose upper bounds go 1, 2, 5, 10, 20, 50, ..., for metrics.
//
//   Histogram compute(kDurationBounds);      // written where the work is done
//   compute.Observe(ended - began);
//   const HistogramCounts seen = compute.Counts();   // read by whoever serves a scrape
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/clock.h"

namespace switchyard {

// The upper bounds of a histogram's buckets, the last one left out: it has none. A bucket takes the
// values up to its bound, that one included. Values are whole numbers of some unit.
struct HistogramBounds {
  static constexpr std::size_t kBounds = 19;
  static constexpr std::size_t kBuckets = kBounds + 1;

  // `first` and 18 more, up to a million times `first`. REQUIRES: first > 0.
  explicit constexpr HistogramBounds(std::uint64_t first, double unit) : units_in_one(unit) {
    std::uint64_t decade = first;
    for (std::size_t i = 0; i < kBounds; ++i) {
      constexpr std::array<std::uint64_t, 3> kSteps{1, 2, 5};
      upper[i] = decade * kSteps[i % kSteps.size()];
      if (i % kSteps.size() == kSteps.size() - 1) decade *= 10;
    }
  }
  // The bucket that takes `value`.
  [[nodiscard]] constexpr std::size_t BucketOf(std::uint64_t value) const {
    std::size_t bucket = 0;
    // A handful of comparisons of neighbors; a search by halves would not be quicker.
    while (bucket < kBounds && value > upper[bucket]) ++bucket;
    return bucket;
  }

  std::array<std::uint64_t, kBounds> upper{};
  // How many of the values' unit are one of the metric's: 1e9 for nanoseconds and seconds.
  double units_in_one;
};

// 10 us to 10 s: steps and their parts.
inline constexpr HistogramBounds kDurationBounds(10'000, 1e9);
// 1 ms to 1,000 s: loading weights, changing plans.
inline constexpr HistogramBounds kLongDurationBounds(1'000'000, 1e9);
// 1 to a million.
inline constexpr HistogramBounds kCountBounds(1, 1);

// Holds what a histogram has counted. A plain value, and for one thread the histogram itself.
struct HistogramCounts {
  explicit HistogramCounts(const HistogramBounds* of = &kDurationBounds) : bounds(of) {}

  void Observe(std::uint64_t value) {
    ++buckets[bounds->BucketOf(value)];
    sum += value;
  }
  // Times before 0, of clocks that disagree, count as 0.
  void Observe(Duration value) {
    Observe(static_cast<std::uint64_t>(value.count() < 0 ? 0 : value.count()));
  }
  void Add(const HistogramCounts& other) {
    for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] += other.buckets[i];
    sum += other.sum;
  }
  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t bucket : buckets) all += bucket;
    return all;
  }

  const HistogramBounds* bounds;
  std::array<std::uint64_t, HistogramBounds::kBuckets> buckets{};  // each without those below it
  std::uint64_t sum = 0;
};

// The value below which `quantile` (0 to 1) of all values lie, as far as the buckets tell: linear
// within its bucket, as Prometheus computes it. `buckets` are one more than `bounds`, each without
// those below it. Infinity for a value above all bounds; NaN where nothing was counted.
double QuantileOf(std::span<const double> bounds, std::span<const std::uint64_t> buckets,
                  double quantile);

// Thread-safe; neither waits nor allocates. Counts reads each cell once, so that it may miss a part
// of what is being observed.
class Histogram {
 public:
  explicit Histogram(const HistogramBounds& bounds) : bounds_(&bounds) {}
  Histogram() : Histogram(kDurationBounds) {}
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  // Relaxed: nothing else is published through the cells.
  void Observe(std::uint64_t value) {
    buckets_[bounds_->BucketOf(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  void Observe(Duration value) {
    Observe(static_cast<std::uint64_t>(value.count() < 0 ? 0 : value.count()));
  }
  [[nodiscard]] HistogramCounts Counts() const {
    HistogramCounts counts(bounds_);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    counts.sum = sum_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  const HistogramBounds* bounds_;
  std::array<std::atomic<std::uint64_t>, HistogramBounds::kBuckets> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace switchyard
