// The placement policy "sticky": equal shares, and experts stay where they are.
//
// A worker's share is its part of the experts of all layers, equal for all up to one expert; a
// worker whose memory is too small takes what fits, and the others take the rest. In each layer a
// worker takes its share divided by the layers, rounded down or up, so that every layer is spread
// as evenly as the whole. Then only those experts move that must: those of workers that are gone,
// and those above a share. When one of W workers joins or leaves, that is about 1/W of all.
//
// Without a plan before it, each layer is cut into ascending runs. With more workers than experts
// a layer uses as many workers as it has experts, and other layers use the other workers.
//
// "Sticky" is the word that Apache Kafka's assignors use for this (KIP-54). It ignores how often an
// expert is used.
#pragma once

#include "coordinator/placement/placement_policy.h"

namespace switchyard {

class StickyPlacement final : public PlacementPolicy {
 public:
  [[nodiscard]] absl::string_view name() const override { return "sticky"; }
  // At most one worker for each expert of each layer. Cost: a few milliseconds for 48 layers of 128
  // experts on 256 workers; more where many experts have to be exchanged.
  [[nodiscard]] absl::StatusOr<std::vector<LayerPlacement>> Place(
      const PlacementRequest& request) const override;
};

}  // namespace switchyard
