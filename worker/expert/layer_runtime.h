// One committed (or staged) epoch as a worker holds it: the plan and the packed experts, by layer
// and slot.
//
// Immutable after staging and always behind shared_ptr<const EpochRuntime>: a step that has taken
// one finishes on it, whatever is committed or retired meanwhile. Two epochs share the experts that
// both hold. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/format/dtype.h"
#include "core/format/wire_format.h"
#include "core/grant_signature.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/plan.h"
#include "worker/device/device_backend.h"
#include "worker/expert/layer_load.h"

namespace switchyard {

// Identifies an expert's weights wherever they came from: the hashes of its tensors by Projection.
struct ExpertKey {
  std::array<Sha256Digest, 3> tensors;

  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ExpertKey& key) {
    return H::combine(std::move(h), key.tensors);
  }
};

// One expert of this worker. `weights` is null only while the epoch is being staged.
struct ExpertSlot {
  ExpertId expert;
  ExpertKey key;
  std::shared_ptr<const PackedExpert> weights;
};

// A dtype in which the plan lets rows of a layer arrive, and the codec that turns them into BF16.
// One for a dtype, because a frame does not carry the layer's global scale.
struct WireDtype {
  CodecSpec spec{};                    // what the codec was made of
  std::shared_ptr<const Codec> codec;  // null for BF16, whose rows are used where they lie
};

// The part of one layer. A frame names an expert by its index in `slots`.
struct LayerRuntime {
  LayerId layer;
  std::int32_t index = 0;         // in EpochRuntime::layers
  std::vector<ExpertSlot> slots;  // index = SlotId; empty when the plan gives this worker none
  std::shared_ptr<const ExpertTable> table{};  // of `slots`
  std::vector<WireDtype> wire_dtypes;
  // Counts the rows of `slots`; the one part of a runtime that changes. Null: nobody counts.
  std::shared_ptr<LayerLoad> load{};

  // Replicas of the layer's experts on this worker; 0 when the plan gives it none.
  [[nodiscard]] std::int32_t local_slots() const { return static_cast<std::int32_t>(slots.size()); }
  // The format in which rows of `dtype` may arrive, of which a plan has at most one; nullptr when
  // rows of that dtype may not arrive. Linear in the few dtypes of a layer.
  [[nodiscard]] const WireDtype* Find(DispatchDtype dtype) const;
  // True when rows may arrive in exactly this format, scales included.
  [[nodiscard]] bool Takes(const WireFormat& format) const;
};

// All that a worker needs to serve its part of a plan.
struct EpochRuntime {
  Plan plan;
  PlanHash hash;
  WorkerOrdinal self;
  std::vector<LayerRuntime> layers;  // one for each layer of the plan, ascending
  GrantKeys grant_keys;              // of the grants of sessions that may attach

  // Shortcuts to the plan.
  [[nodiscard]] const std::string& deployment() const { return plan.deployment; }
  [[nodiscard]] Epoch epoch() const { return plan.epoch; }
  [[nodiscard]] const MoeShape& shape() const { return plan.shape; }
  // nullptr when the plan has no such layer. O(log layers).
  [[nodiscard]] const LayerRuntime* FindLayer(LayerId layer) const;
};

}  // namespace switchyard
