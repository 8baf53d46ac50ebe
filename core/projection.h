// The three weight matrices of a routed expert. Constant data; thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace switchyard {

// Wire values, in plans and manifests: append only.
enum class Projection : std::uint8_t { kGate = 0, kUp = 1, kDown = 2 };

// In the order of their values, which is the order of a manifest's rows. An array indexed by
// Projection has as many elements as this one.
inline constexpr std::array kAllProjections{Projection::kGate, Projection::kUp, Projection::kDown};

// The spelling in checkpoints and error texts.
absl::string_view ProjectionName(Projection projection);  // "gate_proj", "up_proj", "down_proj"

}  // namespace switchyard
