#include "coordinator/placement/contiguous.h"

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// How many experts of each layer each worker takes. The remainder goes to workers that have the
// room for one more, not to the first ones, so that a small worker does not make the placement
// fail.
absl::StatusOr<std::vector<std::int32_t>> Shares(const PlacementRequest& request) {
  const auto workers = static_cast<std::int32_t>(request.workers.size());
  // Every layer is cut in the same way, so that one more expert costs one in each layer.
  const std::int64_t bytes_each =
      static_cast<std::int64_t>(request.layers.size()) * request.expert_bytes;
  const std::int32_t base = request.experts / workers;
  std::int32_t larger = request.experts % workers;
  const PlacementWorker* too_small = nullptr;
  std::vector<std::int32_t> shares;
  for (const PlacementWorker& worker : request.workers) {
    const auto fits = [&](std::int32_t share) {
      return worker.free_bytes == 0 || share * bytes_each <= worker.free_bytes;
    };
    if (!fits(base)) return NoRoom(worker, base * bytes_each);
    const bool takes_one_more = larger > 0 && fits(base + 1);
    if (larger > 0 && !takes_one_more && too_small == nullptr) too_small = &worker;
    larger -= takes_one_more ? 1 : 0;
    shares.push_back(base + (takes_one_more ? 1 : 0));
  }
  // Set whenever a remainder is left: each worker that took none was too small.
  if (larger > 0) return NoRoom(*too_small, (base + 1) * bytes_each);
  return shares;
}

}  // namespace

absl::StatusOr<std::vector<LayerPlacement>> ContiguousPlacement::Place(
    const PlacementRequest& request) const {
  const auto workers = static_cast<std::int32_t>(request.workers.size());
  if (workers == 0 || workers > request.experts) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("%d workers for %d experts; give 1 to %d workers", workers,
                                     request.experts, request.experts));
  }
  SY_ASSIGN_OR_RETURN(const std::vector<std::int32_t> shares, Shares(request));
  LayerPlacement one_layer;
  std::int32_t next = 0;
  for (std::int32_t w = 0; w < workers; ++w) {
    for (std::int32_t slot = 0; slot < shares[static_cast<std::size_t>(w)]; ++slot) {
      one_layer.experts.push_back({ExpertId{next++}, WorkerOrdinal{w}, SlotId{slot}});
    }
  }
  std::vector<LayerPlacement> placement;
  placement.reserve(request.layers.size());
  for (const LayerId layer : request.layers) {
    // The same cut in every layer, so that an operator can locate an expert by its id.
    one_layer.layer = layer;
    placement.push_back(one_layer);
  }
  return placement;
}

}  // namespace switchyard
