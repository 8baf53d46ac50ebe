// The placement policy "contiguous": experts in ascending order, cut into runs whose sizes differ
// by at most one, the same in every layer. If the sizes cannot be equal, the first workers with
// enough room take one more. Simple and predictable; it ignores how often an expert is used.
#pragma once

#include "coordinator/placement/placement_policy.h"

namespace switchyard {

class ContiguousPlacement final : public PlacementPolicy {
 public:
  [[nodiscard]] absl::string_view name() const override { return "contiguous"; }
  // Cost: linear in layers times experts.
  [[nodiscard]] absl::StatusOr<std::vector<LayerPlacement>> Place(
      const PlacementRequest& request) const override;
};

}  // namespace switchyard
