#include "coordinator/placement/contiguous.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/error.h"

namespace switchyard {

absl::StatusOr<std::vector<LayerPlacement>> ContiguousPlacement::Place(
    const PlacementRequest& request) const {
  const auto workers = static_cast<std::int32_t>(request.workers.size());
  if (workers == 0 || workers > request.experts) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("%d workers for %d experts; give 1 to %d workers", workers,
                                     request.experts, request.experts));
  }
  const std::int32_t base = request.experts / workers;
  const std::int32_t larger = request.experts % workers;
  LayerPlacement one_layer;
  std::int32_t next = 0;
  for (std::int32_t w = 0; w < workers; ++w) {
    const std::int32_t share = base + (w < larger ? 1 : 0);
    const PlacementWorker& worker = request.workers[static_cast<std::size_t>(w)];
    const std::int64_t bytes =
        static_cast<std::int64_t>(request.layers.size()) * share * request.expert_bytes;
    if (worker.free_bytes > 0 && bytes > worker.free_bytes) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
          absl::StrFormat("worker %s would hold %d bytes of weights and has room for %d; add "
                          "workers or memory",
                          worker.id, bytes, worker.free_bytes),
          {{"worker", worker.id},
           {"want", absl::StrCat(bytes)},
           {"have", absl::StrCat(worker.free_bytes)}});
    }
    for (std::int32_t slot = 0; slot < share; ++slot) {
      one_layer.experts.push_back({ExpertId{next++}, WorkerOrdinal{w}, SlotId{slot}});
    }
  }
  std::vector<LayerPlacement> placement;
  placement.reserve(request.layers.size());
  for (const LayerId layer : request.layers) {
    one_layer.layer = layer;
    placement.push_back(one_layer);
  }
  return placement;
}

}  // namespace switchyard
