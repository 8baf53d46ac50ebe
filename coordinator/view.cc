#include "coordinator/view.h"

#include <array>

namespace switchyard {

absl::string_view WorkerStateName(WorkerState state) {
  // The index is the enumerator, whose values are fixed in the header.
  constexpr std::array<const char*, 3> kNames{"live", "disconnected", "leaving"};
  return kNames[static_cast<std::size_t>(state)];
}

absl::string_view DeploymentStateName(DeploymentState state) {
  constexpr std::array<const char*, 3> kNames{"pending", "serving", "unavailable"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace switchyard
