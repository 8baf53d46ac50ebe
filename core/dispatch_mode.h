// How rows of a layer are laid out on the wire, and which part of inference they belong to.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace switchyard {

// Wire values: append only. In both modes the source sums rows in a fixed order.
enum class DispatchMode : std::uint8_t {
  kNormal = 0,      // throughput: a row per (token, worker), weights applied at the worker
  kLowLatency = 1,  // latency: a row per (token, expert), weights applied at the source
};
absl::string_view DispatchModeName(DispatchMode mode);  // "normal", "low_latency"
// False, with `mode` unchanged, for any other name.
bool DispatchModeFromName(absl::string_view name, DispatchMode* mode);

// The part of inference whose steps a session carries. kMixed sessions carry both. Wire values.
enum class Phase : std::uint8_t { kPrefill = 0, kDecode = 1, kMixed = 2 };
absl::string_view PhaseName(Phase phase);  // "prefill", "decode", "mixed"

}  // namespace switchyard
