// All placement policies, one line each in registry.cc.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "coordinator/placement/placement_policy.h"

namespace switchyard {

struct PlacementPolicyEntry {
  const char* name;
  std::unique_ptr<PlacementPolicy> (*make)();
};

std::span<const PlacementPolicyEntry> PlacementPolicies();
// Errors: kInvalidArgument (BAD_CONFIG) naming the known ones.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePlacementPolicy(absl::string_view name);

}  // namespace switchyard
