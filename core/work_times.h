// How long the parts of steps took at a worker, by kind of work: its heartbeats report the times
// since the one before, its status those since its process started. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/histogram.h"

namespace switchyard {

enum class WorkKind : std::uint8_t { kDecode = 0, kPrefill = 1, kLockstep = 2 };

// Both histograms have the buckets of kDurationBounds.
struct WorkTimes {
  WorkKind kind{};
  // From a request's arrival until its result is sent, or of a chunk that a gateway runs on its own
  // experts; in lockstep, of the worker's part of a step.
  HistogramCounts step{};
  // The part of it until its batch starts; in lockstep, in which rows of other ranks are awaited.
  // Fewer than steps where some are not measured.
  HistogramCounts queue{};
  friend bool operator==(const WorkTimes& a, const WorkTimes& b);
};

[[nodiscard]] bool IsEmpty(const WorkTimes& times);
// Returns what `total` has beyond `before`, earlier of the same process, without empty kinds.
[[nodiscard]] std::vector<WorkTimes> TimesSince(const std::vector<WorkTimes>& before,
                                                std::vector<WorkTimes> total);
// Adds to the entry of the same kind, or makes one. A sum that does not fit stays at the largest
// number: what workers report is not trusted.
void AddSaturating(std::vector<WorkTimes>* sums, const WorkTimes& more);

}  // namespace switchyard
