// One epoch as a session uses it: the plan looked up by layer, and the attachment of each worker.
//
// Immutable but for the attachment pointers' readiness and the count of steps. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/dispatch_config.h"
#include "core/placement_map.h"
#include "core/plan.h"
#include "core/session_messages.h"
#include "worker/device/device_backend.h"
#include "worker/source/p2p/attachment.h"

namespace switchyard {

struct BoundLayer {
  LayerId layer;
  PlacementMap placement;
  DispatchMode mode = DispatchMode::kNormal;  // the session's, or what the plan says for its phase
  std::int32_t max_tokens_per_step = 0;       // the least of the edges'; 0: no bound
  // By worker ordinal: each edge has a wire dtype of its own.
  std::vector<std::shared_ptr<const Codec>> codecs;
  std::vector<std::int32_t> local_slots;
};

struct BoundPlan {
  Plan plan;
  PlanHash hash;
  std::vector<BoundLayer> layers;    // ascending
  std::vector<Attachment*> workers;  // by ordinal
  std::vector<bool> bound;           // by ordinal: the worker has confirmed this epoch
  std::int32_t steps = 0;            // in flight under this epoch

  [[nodiscard]] const BoundLayer* FindLayer(LayerId layer) const;
  [[nodiscard]] bool AllBound() const;
};

// Without attachments. Errors: kFailedPrecondition, BAD_CONFIG when the plan has no config for the
// order's phase and an edge, or its edges differ in mode and the order names none; UNSUPPORTED when
// `device` has no codec for the wire dtype of an edge.
absl::StatusOr<std::unique_ptr<BoundPlan>> MakeBoundPlan(const PlanUpdate& news,
                                                         const OpenSessionRequest& order,
                                                         const DeviceBackend& device);

}  // namespace switchyard
