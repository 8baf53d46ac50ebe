// A BoundPlan: one epoch as a session uses it, with the plan looked up by layer and the attachment
// of each worker.
//
// Only the attachments, their confirmations and the count of steps change. Not thread-safe.
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

// One layer of the plan, resolved for this session's phase, mode and device.
struct BoundLayer {
  LayerId layer;
  PlacementMap placement;
  DispatchMode mode = DispatchMode::kNormal;  // the session's, or the plan's for its phase
  std::int32_t max_tokens_per_step = 0;       // the least of the edges'; 0: no bound
  // By worker ordinal: each edge has a wire dtype of its own.
  // They encode the rows for that worker; never null.
  std::vector<std::shared_ptr<const Codec>> codecs;
  // Likewise, of the device of the session's tensors; empty where it lacks one of them.
  std::vector<std::shared_ptr<const Codec>> tensor_codecs;
  std::vector<std::int32_t> local_slots;  // experts on each worker, by ordinal
};

// One plan of the session. The binder keeps it while it is current or coming, or has steps in
// flight, so a step may point into it.
struct BoundPlan {
  Plan plan;
  PlanHash hash;                     // what workers confirm together with the epoch
  std::vector<BoundLayer> layers;    // ascending
  std::vector<Attachment*> workers;  // by ordinal
  std::vector<bool> confirmed;       // by ordinal: the worker has bound this epoch
  std::int32_t steps = 0;            // in flight under this epoch

  // nullopt when the attachment is to none of its workers.
  [[nodiscard]] std::optional<std::size_t> OrdinalOf(const Attachment& attachment) const;
  // nullptr when the plan has no such layer.
  [[nodiscard]] const BoundLayer* FindLayer(LayerId layer) const;
  // Every worker of the plan has bound it, so that steps may start on it.
  [[nodiscard]] bool AllConfirmed() const;
};

// Without attachments. Errors: kFailedPrecondition, BAD_CONFIG when the plan has no config for the
// session's phase and an edge, or its edges differ in mode and the session names none; UNSUPPORTED
// when `device` has no codec for the wire dtype of an edge. `tensors`: the device of the session's
// tensors, if it may encode rows; else null.
absl::StatusOr<std::unique_ptr<BoundPlan>> MakeBoundPlan(const PlanUpdate& update,
                                                         const OpenSessionRequest& request,
                                                         const DeviceBackend& device,
                                                         const DeviceBackend* tensors = nullptr);

}  // namespace switchyard
