// Models and workers for tests of the control plane.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "coordinator/spec/deployment.h"
#include "core/capability.h"

namespace switchyard::testing {

struct FactsShape {
  std::int32_t experts = 16;
  std::int32_t top_k = 4;
  std::int32_t layers = 2;
  std::uint64_t weights = 1;  // other weights, other manifest
};

// A model whose tensors exist by their hashes alone. One expert is 192 bytes.
inline ModelFacts MakeFacts(const FactsShape& shape = {}) {
  ModelFacts facts;
  facts.shape = {.hidden = 8, .intermediate = 4, .experts = shape.experts, .top_k = shape.top_k};
  for (std::int32_t l = 0; l < shape.layers; ++l) {
    const LayerId layer{2 * l + 1};
    facts.layers.push_back(layer);
    facts.storage.emplace_back();
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      for (const Projection p : kAllProjections) {
        const std::string text =
            absl::StrCat(shape.weights, "/", layer.value, "/", e, "/", static_cast<int>(p));
        facts.manifest.tensors.push_back({layer, ExpertId{e}, p, Sha256(text)});
      }
    }
  }
  return facts;
}

// What the headers of its checkpoint say.
inline ModelFacts MakeLayout(const FactsShape& shape = {}) {
  ModelFacts facts = MakeFacts(shape);
  facts.manifest = {};
  return facts;
}

inline CapabilitySet MakeCapabilities(std::int64_t weight_bytes_max = 0) {
  CapabilitySet capabilities;
  capabilities.device = DeviceKind::kCpu;
  capabilities.device_profile = "cpu";
  capabilities.kernel_family = "scalar";
  capabilities.wire_dtypes = {DispatchDtype::kBf16};
  capabilities.schemes = {QuantScheme::kNone};
  capabilities.transports = {"inproc"};
  capabilities.max_top_k = 32;
  capabilities.weight_bytes_max = weight_bytes_max;
  return capabilities;
}

inline DeploymentSpec MakeSpec(std::int32_t min_workers = 1) {
  DeploymentSpec spec;
  spec.name = "demo";
  spec.model = "m";
  spec.checkpoint = "/models/m";
  spec.min_workers = min_workers;
  return spec;
}

}  // namespace switchyard::testing
