#include "core/work_times.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace switchyard {
namespace {

// No counter goes back; the bounds keep a mistake from becoming a number near 2^64.
void Subtract(const HistogramCounts& from, HistogramCounts* counts) {
  for (std::size_t i = 0; i < counts->buckets.size(); ++i) {
    counts->buckets[i] -= std::min(counts->buckets[i], from.buckets[i]);
  }
  counts->sum -= std::min(counts->sum, from.sum);
}

void AddSaturating(const HistogramCounts& more, HistogramCounts* sum) {
  const auto add = [](std::uint64_t* to, std::uint64_t value) {
    *to += std::min(value, std::numeric_limits<std::uint64_t>::max() - *to);
  };
  for (std::size_t i = 0; i < sum->buckets.size(); ++i) add(&sum->buckets[i], more.buckets[i]);
  add(&sum->sum, more.sum);
}

bool IsEqual(const HistogramCounts& a, const HistogramCounts& b) {
  return a.buckets == b.buckets && a.sum == b.sum;
}

}  // namespace

bool operator==(const WorkTimes& a, const WorkTimes& b) {
  return a.kind == b.kind && IsEqual(a.step, b.step) && IsEqual(a.queue, b.queue);
}

bool IsEmpty(const WorkTimes& times) { return times.step.count() == 0 && times.queue.count() == 0; }

std::vector<WorkTimes> TimesSince(const std::vector<WorkTimes>& before,
                                  std::vector<WorkTimes> total) {
  for (WorkTimes& one : total) {
    for (const WorkTimes& earlier : before) {
      if (earlier.kind != one.kind) continue;
      Subtract(earlier.step, &one.step);
      Subtract(earlier.queue, &one.queue);
    }
  }
  std::erase_if(total, IsEmpty);
  return total;
}

void AddSaturating(std::vector<WorkTimes>* sums, const WorkTimes& more) {
  const auto same = std::find_if(sums->begin(), sums->end(),
                                 [&](const WorkTimes& of) { return of.kind == more.kind; });
  WorkTimes& sum = same != sums->end() ? *same : sums->emplace_back(WorkTimes{.kind = more.kind});
  AddSaturating(more.step, &sum.step);
  AddSaturating(more.queue, &sum.queue);
}

}  // namespace switchyard
