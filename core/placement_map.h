// The places of the experts of one layer: physical expert -> (worker, slot).
//
// The list holds every physical expert; a logical expert has one entry for each replica. Slots of a
// worker are dense from 0. Immutable after Validate; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "core/ids.h"

namespace switchyard {

// One replica of a logical expert: its copy of the weights on one worker.
struct PhysicalExpert {
  ExpertId expert;  // the logical expert
  WorkerOrdinal worker;
  SlotId slot;
  friend constexpr auto operator<=>(const PhysicalExpert&, const PhysicalExpert&) = default;
};

// Part of a plan. The order of `experts` is part of the plan's hash.
struct LayerPlacement {
  LayerId layer;
  std::vector<PhysicalExpert> experts;  // sorted by (worker, slot)
  friend bool operator==(const LayerPlacement&, const LayerPlacement&) = default;
};

// Looks up by logical expert and by worker, in O(1). Built once from a LayerPlacement in O(experts
// + workers); owns what it returns.
class PlacementMap {
 public:
  PlacementMap() = default;
  // REQUIRES: ValidatePlacement accepted `placement` with the same numbers.
  PlacementMap(const LayerPlacement& placement, std::int32_t experts, std::int32_t workers);

  // Replicas of `expert` in ascending worker ordinal; never empty for 0 <= expert < experts.
  [[nodiscard]] std::span<const PhysicalExpert> Replicas(ExpertId expert) const;
  // The physical experts of `worker` in ascending slot.
  [[nodiscard]] std::span<const PhysicalExpert> OnWorker(WorkerOrdinal worker) const;
  [[nodiscard]] std::int32_t experts() const { return experts_; }
  [[nodiscard]] std::int32_t workers() const { return workers_; }

 private:
  std::int32_t experts_ = 0;
  std::int32_t workers_ = 0;
  // Both lists hold all entries; *_begin_[i] is the first of expert or worker i, as in a CSR
  // matrix.
  std::vector<PhysicalExpert> by_expert_;
  std::vector<std::int32_t> expert_begin_;  // experts_ + 1
  std::vector<PhysicalExpert> by_worker_;
  std::vector<std::int32_t> worker_begin_;  // workers_ + 1
};

// Errors: kInvalidArgument (BAD_CONFIG) unless each logical expert has >= 1 replica, at most one on
// a worker, ordinals are in range, each (worker, slot) is used once, slots are dense (I5) and the
// list is sorted by (worker, slot): the plan's hash covers its order, so one placement has one
// hash.
absl::Status ValidatePlacement(const LayerPlacement& placement, std::int32_t experts,
                               std::int32_t workers);

}  // namespace switchyard
