// The layouts of the experts of one layer: the quant config applied to the layer's modules.
//
// Resolved for each layer, never for a process: a quantized model with an unquantized draft (MTP)
// layer is the ordinary case. Rules, the first that holds:
//
//   1. no quant config                                            BF16
//   2. draft layer whose experts are BF16 tensors                 BF16, whatever the config says
//   3. msModelSlim: the types of expert 0; gate and up agree, down may differ; "FLOAT" is BF16;
//      a draft layer without rows is BF16
//   4. an exclusion names the experts' container, an expert or the projection        BF16
//   5. the first group that names one of them, then the group of all linear modules
//   6. no group names them                                        BF16
//
// All experts of a layer are alike, and so are gate, up and down except under rule 3. Pure;
// thread-safe. Cost: experts * 3 matches (name_patterns.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/projection.h"
#include "model/quant/config/quant_config.h"
#include "model/quant/layout/quant_layout.h"

namespace switchyard {

// The names of one layer's expert modules: "<container>.<expert>.<projection>".
struct ExpertModules {
  std::string container;  // "model.layers.3.mlp.experts"
  // In the order of Projection: {"gate_proj", "up_proj", "down_proj"}. When packed, gate and up are
  // one tensor of all experts: {"gate_up_proj", "gate_up_proj", "down_proj"}.
  std::array<std::string, 3> projections;
  std::int32_t experts = 0;
  bool packed = false;
  bool draft = false;           // an MTP or nextn layer
  bool stored_in_bf16 = false;  // the checkpoint's tensor of expert 0's gate is BF16

  // "model.layers.3.mlp.experts.7.gate_proj"; packed: "model.layers.3.mlp.experts.gate_up_proj".
  [[nodiscard]] std::string Name(std::int32_t expert, Projection projection) const;
};

struct LayerQuant {
  QuantScheme scheme = QuantScheme::kNone;
  std::array<ProjectionQuant, 3> projections;  // by Projection
  std::string why;  // the rule that held, with the entry or group: "excluded by 'lm_head'"

  [[nodiscard]] const ProjectionQuant& of(Projection projection) const {
    return projections[static_cast<std::size_t>(projection)];
  }
};

// Errors: kInvalidArgument (BAD_CONFIG), metadata {key} (the module): msModelSlim rows that are
// missing (with the names that were tried), gate and up that differ, experts that differ;
// kUnimplemented (UNSUPPORTED), metadata {key}: a type or a mix that is not served, quantized
// packed experts.
absl::StatusOr<LayerQuant> ResolveLayerQuant(const QuantConfig& config,
                                             const ExpertModules& modules);

}  // namespace switchyard
