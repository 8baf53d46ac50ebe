#include "core/weight_manifest.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace switchyard {
namespace {

auto KeyOf(const TensorHash& row) { return std::make_tuple(row.layer, row.expert, row.projection); }

}  // namespace

Sha256Digest WeightManifest::Hash() const {
  Sha256Stream stream;
  for (const TensorHash& row : tensors) {
    // The key is hashed too: two experts whose weights were exchanged must not have the same hash.
    const std::array<std::int32_t, 3> key{row.layer.value, row.expert.value,
                                          static_cast<std::int32_t>(row.projection)};
    stream.Update(std::as_bytes(std::span(key)));
    stream.Update(std::as_bytes(std::span(row.sha256.bytes)));
  }
  return stream.Finish();
}

const TensorHash* WeightManifest::Find(LayerId layer, ExpertId expert,
                                       Projection projection) const {
  const TensorHash wanted{layer, expert, projection, {}};
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), wanted,
      [](const TensorHash& a, const TensorHash& b) { return KeyOf(a) < KeyOf(b); });
  return it != tensors.end() && KeyOf(*it) == KeyOf(wanted) ? &*it : nullptr;
}

}  // namespace switchyard
