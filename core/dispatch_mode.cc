#include "core/dispatch_mode.h"

#include <array>

namespace switchyard {
namespace {
constexpr std::array<const char*, 2> kModeNames{"normal", "low_latency"};
constexpr std::array<const char*, 3> kPhaseNames{"prefill", "decode", "mixed"};
}  // namespace

absl::string_view DispatchModeName(DispatchMode mode) {
  return kModeNames[static_cast<std::size_t>(mode)];
}

bool DispatchModeFromName(absl::string_view name, DispatchMode* mode) {
  for (std::size_t i = 0; i < kModeNames.size(); ++i) {
    if (name == kModeNames[i]) {
      *mode = static_cast<DispatchMode>(i);
      return true;
    }
  }
  return false;
}

absl::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<std::size_t>(phase)]; }

}  // namespace switchyard
