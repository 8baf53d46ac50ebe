// The part of a deployment that the store keeps.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "coordinator/spec/deployment.h"
#include "core/grant_signature.h"

namespace switchyard {

struct DeploymentRecord {
  DeploymentSpec spec = {};
  ModelFacts facts = {};
  // Signs the grants of the deployment's sessions. Stays when the deployment is applied again,
  // since sessions go on. Not in DeploymentView, which is shown. Empty in records of older formats.
  GrantKey grant_key = {};
  // An operator has deleted it: it takes no new sessions, and goes with the last one.
  bool deleting = false;
  // And does not wait for the last one.
  bool deleting_at_once = false;
  // Counts the changes of spec and facts, from 1 (coordinator/history/revisions.h). 0 in records of
  // older formats.
  std::uint64_t revision = 0;
  friend bool operator==(const DeploymentRecord&, const DeploymentRecord&) = default;
};

// The stored form. Equal records give equal bytes.
std::string CanonicalBytes(const DeploymentRecord& record);
// Reads what CanonicalBytes wrote, in this format or an earlier one. Errors: kDataLoss
// (STORE_WRITE) for anything else.
absl::StatusOr<DeploymentRecord> ParseDeploymentRecord(absl::string_view bytes);

}  // namespace switchyard
