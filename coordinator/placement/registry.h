// All placement policies. A new one is a header and a source, a line in registry.cc and one in
// CMakeLists.txt; the suite in tests/conformance/placement_policy_test.cc runs over every entry.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "coordinator/placement/placement_policy.h"

namespace switchyard {

// A row of the table: how to make the policy, and its name for DriverOptions::placement and
// switchyard-coordinator --placement. It has letters, digits and underscores: tests are named by
// it.
struct PlacementPolicyEntry {
  const char* name;
  std::unique_ptr<PlacementPolicy> (*make)();
};

std::span<const PlacementPolicyEntry> PlacementPolicies();
// Errors: kInvalidArgument (BAD_CONFIG) listing the known policies.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePlacementPolicy(absl::string_view name);

}  // namespace switchyard
