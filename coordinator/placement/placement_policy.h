// The seam for placement policies: which expert goes to which worker and slot.
//
// Policies are pure: equal requests give equal placements, so that a coordinator that plans again
// without a cause finds nothing to change. What a policy returns is checked (ValidatePlan) before
// any worker sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/ids.h"
#include "core/placement_map.h"

namespace switchyard {

// One expert of one layer.
struct LayerExpert {
  LayerId layer;
  ExpertId expert;
  friend constexpr auto operator<=>(const LayerExpert&, const LayerExpert&) = default;
};

struct PlacementWorker {
  std::string id;
  // For expert weights of this deployment, those that it holds now included; 0: unknown, counts as
  // sufficient.
  std::int64_t free_bytes = 0;
  // Its experts in the serving plan, ascending. It keeps all of them until the new plan serves, so
  // that both together must fit.
  std::vector<LayerExpert> holds = {};
  // Its experts before it was lost, if that is not long ago; ascending. Its storage may still have
  // them.
  std::vector<LayerExpert> held = {};
};

struct PlacementRequest {
  std::vector<LayerId> layers;  // ascending
  std::int32_t experts = 0;     // of each layer
  // The size of one expert in the layer where they are largest.
  std::int64_t expert_bytes = 0;
  std::vector<PlacementWorker> workers;  // index = WorkerOrdinal
};

// The error of a policy that would put `bytes` of weights on a worker without the room for them:
// kResourceExhausted (OUT_OF_MEMORY), with the worker and both sizes.
absl::Status NoRoom(const PlacementWorker& worker, std::int64_t bytes);

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  // The name in the registry.
  [[nodiscard]] virtual absl::string_view name() const = 0;
  // Returns one LayerPlacement for each layer, in order. Each passes ValidatePlacement; every
  // worker gets at least one expert in some layer. Thread-safe.
  // Errors: kResourceExhausted (OUT_OF_MEMORY) naming a worker whose memory is too small for its
  // share; kInvalidArgument (BAD_CONFIG) for no workers, or more than the policy can use.
  [[nodiscard]] virtual absl::StatusOr<std::vector<LayerPlacement>> Place(
      const PlacementRequest& request) const = 0;
};

}  // namespace switchyard
