#include "worker/collective/source/step_places.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"

namespace switchyard {

bool SameWorkers(const Plan& a, const Plan& b) {
  return std::equal(a.workers.begin(), a.workers.end(), b.workers.begin(), b.workers.end(),
                    [](const PlanWorker& one, const PlanWorker& other) {
                      return one.incarnation == other.incarnation;
                    });
}

absl::StatusOr<std::shared_ptr<const StepPlaces>> StepPlaces::Make(DeviceBackend* device,
                                                                   Stream* stream,
                                                                   const Plan& plan) {
  std::vector<std::pair<LayerId, std::vector<std::int32_t>>> tables;
  for (const LayerPlacement& layer : plan.layers) {
    std::vector<std::int32_t> places = GroupPlaces(plan, layer);
    if (!places.empty()) tables.emplace_back(layer.layer, std::move(places));
  }
  std::shared_ptr<const StepPlaces> none;
  if (tables.empty()) return none;
  const std::size_t bytes = static_cast<std::size_t>(plan.shape.experts) * sizeof(std::int32_t);
  auto made = std::make_shared<StepPlaces>();
  SY_ASSIGN_OR_RETURN(made->memory_, device->Allocate(tables.size() * bytes, MemoryKind::kDevice));
  std::byte* at = made->memory_->data();
  std::vector<CopyPiece> pieces;
  for (const auto& [layer, places] : tables) {
    made->layers_[layer] = reinterpret_cast<const std::int32_t*>(at);
    pieces.push_back(
        {.to = at, .from = reinterpret_cast<const std::byte*>(places.data()), .bytes = bytes});
    at += bytes;
  }
  if (device->host_access()) {
    for (const CopyPiece& piece : pieces) std::memcpy(piece.to, piece.from, piece.bytes);
  } else {
    // Pageable memory is read before the call returns.
    SY_RETURN_IF_ERROR(stream->Copy(pieces));
  }
  return std::shared_ptr<const StepPlaces>(std::move(made));
}

}  // namespace switchyard
