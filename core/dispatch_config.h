// How rows of one layer travel: one config for each (layer, phase, edge), decided by the
// coordinator's config planner, part of the plan and of its hash.
//
// Both ends of an edge read the same config from the same plan, so they cannot disagree about
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device_profile.h"
#include "core/dispatch_mode.h"
#include "core/format/dtype.h"
#include "core/format/wire_format.h"
#include "core/ids.h"
#include "core/quant_scheme.h"

namespace switchyard {

// The direction from a kind of source to a kind of worker. Dtypes are decided for kinds and not for
// single workers, so that a plan has few configs.
struct Edge {
  DeviceKind source = DeviceKind::kCpu;
  DeviceKind worker = DeviceKind::kCpu;
  friend constexpr auto operator<=>(const Edge&, const Edge&) = default;
};

// Plain data. Every field is part of the plan's canonical bytes, the trail too: two plans that
// differ in a reason differ in their hash.
struct DispatchConfig {
  LayerId layer;
  Phase phase = Phase::kMixed;
  Edge edge;
  DispatchMode mode = DispatchMode::kNormal;
  DispatchDtype wire_dtype = DispatchDtype::kBf16;
  DispatchDtype combine_dtype = DispatchDtype::kBf16;  // rows on the way back
  QuantScheme scheme = QuantScheme::kNone;
  std::int32_t max_tokens_per_step = 0;  // M of low_latency; 0: no bound (normal chunks)
  std::vector<std::string> trail;  // one reason for each step, in order; `syctl explain` prints it
  ScaleKind wire_scale = ScaleKind::kNone;  // kNone: that of wire_dtype's default format
  float global_scale = 1.0F;                // NVFP4's scales are relative to it; 1 for the others

  // The format of rows on the wire: wire_dtype with wire_scale.
  [[nodiscard]] WireFormat format() const;
  friend bool operator==(const DispatchConfig&, const DispatchConfig&) = default;
};

// Default M of low_latency on CPU workers (tokens per step).
inline constexpr std::int32_t kDefaultMaxTokensPerStep = 512;

}  // namespace switchyard
