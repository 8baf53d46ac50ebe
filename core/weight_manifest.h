// The expected expert weights of a model: one SHA-256 for each projection of each routed expert.
//
// The coordinator builds it when a deployment is applied; its hash is part of the plan, and PREPARE
// brings each worker the rows of its own experts, so that a worker ACKs only what it has verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/hash.h"
#include "core/ids.h"
#include "core/projection.h"

namespace switchyard {

// One row: the hash of one projection's weights.
struct TensorHash {
  LayerId layer;
  ExpertId expert;
  Projection projection = Projection::kGate;
  Sha256Digest sha256;  // of the bytes as stored in the checkpoint
  friend bool operator==(const TensorHash&, const TensorHash&) = default;
};

// Tens of thousands of rows for a large model: three for each routed expert of each layer.
struct WeightManifest {
  std::vector<TensorHash> tensors;  // ascending (layer, expert, projection)

  // The hash of all rows, in order; goes into Plan::manifest.
  [[nodiscard]] Sha256Digest Hash() const;
  // nullptr when the manifest has no such row. O(log n).
  [[nodiscard]] const TensorHash* Find(LayerId layer, ExpertId expert, Projection projection) const;

  friend bool operator==(const WeightManifest&, const WeightManifest&) = default;
};

}  // namespace switchyard
