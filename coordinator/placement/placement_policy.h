// The seam for placement policies: which expert goes to which worker and slot.
//
// Policies are pure: equal requests give equal placements, so that a coordinator that plans again
// without a cause finds nothing to change. What a policy returns is checked (ValidatePlan) before
// any worker sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/placement_map.h"

namespace switchyard {

struct PlacementWorker {
  std::string id;
  // For expert weights; 0: unknown, counts as sufficient.
  std::int64_t free_bytes = 0;
};

struct PlacementRequest {
  std::vector<LayerId> layers;  // ascending
  std::int32_t experts = 0;     // of each layer
  // The size of one expert in the layer where they are largest.
  std::int64_t expert_bytes = 0;
  std::vector<PlacementWorker> workers;  // index = WorkerOrdinal
};

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  // The name in the registry.
  [[nodiscard]] virtual absl::string_view name() const = 0;
  // Returns one LayerPlacement for each layer, in order. Each passes ValidatePlacement and gives
  // every worker at least one expert. Thread-safe.
  // Errors: kResourceExhausted (OUT_OF_MEMORY) naming the worker whose share exceeds its memory;
  // kInvalidArgument (BAD_CONFIG) for no workers or more workers than experts.
  [[nodiscard]] virtual absl::StatusOr<std::vector<LayerPlacement>> Place(
      const PlacementRequest& request) const = 0;
};

}  // namespace switchyard
