// A tenant is a set of callers that share models and limits. It comes from the file of tenants
// (services/config/security_files.h). Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

struct Tenant {
  std::string name = {};                 // for readers of the file; never shown elsewhere
  std::vector<std::string> ids = {};     // SPIFFE ids of its callers; no other tenant has them
  std::vector<std::string> models = {};  // empty: all
  std::optional<std::uint32_t> sessions_max = {};  // open at a time
  std::optional<std::uint32_t> tokens_max = {};  // the sum of the largest batches of those sessions
  // The memory of its steps through one gateway, with their results until those have been read.
  std::optional<std::uint64_t> gateway_memory_bytes_max = {};

  [[nodiscard]] bool MayUse(absl::string_view model) const {
    return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
  }
};

// Null: nothing is limited.
using TenantRef = std::shared_ptr<const Tenant>;

}  // namespace switchyard
