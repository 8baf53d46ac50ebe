#include "worker/weights/safetensors_source.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"

namespace switchyard {

SafetensorsSource::SafetensorsSource(std::unique_ptr<const Checkpoint> checkpoint,
                                     WeightCheck check)
    : checkpoint_(std::move(checkpoint)), check_(std::move(check)) {}

// Verifies the bytes as stored, before any conversion, because the manifest hashes stored bytes.
absl::StatusOr<ExpertWeights> SafetensorsSource::Load(LayerId layer, ExpertId expert) {
  SY_ASSIGN_OR_RETURN(ExpertWeights weights, LoadExpert(*checkpoint_, layer, expert));
  return Verified(check_, checkpoint_->config(), layer, expert, std::move(weights));
}

MoeShape SafetensorsSource::shape() const { return ShapeOf(checkpoint_->config()); }

QuantScheme SafetensorsSource::SchemeOf(LayerId layer) const {
  const LayerExperts* experts = checkpoint_->FindExperts(layer);
  return experts == nullptr ? QuantScheme::kNone : experts->quant().scheme;
}

std::string SafetensorsSource::describe() const {
  return absl::StrCat("checkpoint ", checkpoint_->dir());
}

}  // namespace switchyard
