#include "coordinator/placement/registry.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/placement/contiguous.h"
#include "coordinator/placement/sticky.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

template <typename Policy>
std::unique_ptr<PlacementPolicy> Make() {
  return std::make_unique<Policy>();
}

// A table and not self-registration: the linker would drop an object file that nothing names.
constexpr std::array kPolicies = {
    PlacementPolicyEntry{"sticky", &Make<StickyPlacement>},
    PlacementPolicyEntry{"contiguous", &Make<ContiguousPlacement>},
};

}  // namespace

std::span<const PlacementPolicyEntry> PlacementPolicies() { return kPolicies; }

absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePlacementPolicy(absl::string_view name) {
  std::vector<std::string> known;
  for (const PlacementPolicyEntry& entry : kPolicies) {
    if (name == entry.name) return entry.make();
    known.emplace_back(entry.name);
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrFormat("no placement policy \"%s\"; known: %s", name, absl::StrJoin(known, ", ")));
}

}  // namespace switchyard
