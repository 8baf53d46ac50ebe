// Counts what a worker serves on one attachment, or to one session's direct calls.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/session_messages.h"
#include "worker/device/stream.h"
#include "worker/expert/layer_load.h"
#include "worker/expert/layer_runtime.h"
#include "worker/routing/request_codec.h"

namespace switchyard {

// Rows, bytes and hits of one attachment or one session's direct calls. Not thread-safe.
class ServedCounts {
 public:
  // Remembers the layers of the deployment and allocates here, so that Add allocates nothing.
  // `lane`: who calls Add, in the layers' own counters (worker/expert/layer_load.h).
  explicit ServedCounts(const EpochRuntime& runtime, LoadLane lane = LoadLane::kAttached);
  // A batch of `request` whose rows came and went in `request_row_bytes` and `reply_row_bytes`.
  // O(rows * top_k) in mode normal, O(local slots) in low_latency.
  void Add(const LayerRuntime& layer, const RequestView& request, std::int64_t request_row_bytes,
           std::int64_t reply_row_bytes);
  void AddNanRows(std::uint32_t rows) { counters_.nan_rows += rows; }
  // Makes room for the magnitudes of every expert, which are recorded from now on.
  void RecordAmax();
  // The magnitudes of a layer's experts, [experts]; nullptr when none are recorded. Valid as long
  // as this.
  [[nodiscard]] ExpertAmax* AmaxOf(const LayerRuntime& layer);
  // Adds what `ended` counted; ignored unless it has the same layers and sizes.
  void Absorb(const ServedCounts& ended);
  // Allocates; hits of experts that served no row are left out.
  [[nodiscard]] AttachmentCounters Snapshot() const;
  // True when `runtime` has the same layers and sizes, so that its steps can be counted here.
  [[nodiscard]] bool Fits(const EpochRuntime& runtime) const;

 private:
  LoadLane lane_;
  MoeShape shape_;
  std::vector<LayerId> layers_;
  std::vector<std::uint64_t> hits_;  // [layers, experts]
  std::vector<ExpertAmax> amax_;     // [layers, experts], or empty
  AttachmentCounters counters_;      // hits are filled in by Snapshot
};

}  // namespace switchyard
