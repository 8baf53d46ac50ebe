// Who the holders of certificates are: a table of exact SPIFFE ids. No pattern, no DNS name and no
// address gives a role. Source of the form of ids: the SPIFFE-ID specification, section 2.
//
// Where the table has tenants, every source belongs to one of them: a source that was forgotten may
// do nothing, and not everything. Plain data; thread-safe once made.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/tenants/tenant.h"
#include "services/security/role.h"

namespace switchyard {

// Ids of a table, at most; one is a role of a release, so thousands are a mistake.
inline constexpr std::size_t kIdentitiesMax = 4096;
// The specification's limit.
inline constexpr std::size_t kSpiffeIdBytesMax = 2048;

// One row.
struct Identity {
  std::string id;  // "spiffe://cluster.local/ns/moe/sa/prod-worker"
  Roles roles;
  std::vector<std::string> pools = {};  // that a worker may join; empty: any, and none
};

class IdentityTable {
 public:
  // Errors: kInvalidArgument (BAD_CONFIG): no SPIFFE id, an id twice, one without roles, pools that
  // are no names or of one that is no worker, or ids of two trust domains, naming the id; too many;
  // or none at all.
  static absl::StatusOr<IdentityTable> Create(std::vector<Identity> identities);

  // Once, before the table is shared. A tenant may have ids that the table does not know: the two
  // files need not change at the same moment. Errors: kInvalidArgument (BAD_CONFIG), by the place
  // in the list and without a tenant's name, which logs must not have: no name or one twice; no
  // ids, no SPIFFE id, one twice; an empty name of a model; none at all.
  absl::Status AddTenants(std::vector<Tenant> tenants);

  // Null: the table does not know the id. Valid as long as the table.
  [[nodiscard]] const Identity* Find(absl::string_view id) const;
  // Null: the id has no tenant. Valid as long as the table.
  [[nodiscard]] const Tenant* TenantOf(absl::string_view id) const;
  [[nodiscard]] bool has_tenants() const { return !tenants_.empty(); }
  [[nodiscard]] const std::string& trust_domain() const { return trust_domain_; }
  [[nodiscard]] std::size_t size() const { return identities_.size(); }

 private:
  std::string trust_domain_;
  std::map<std::string, Identity, std::less<>> identities_;
  std::vector<Tenant> tenants_;
  std::map<std::string, std::size_t, std::less<>> tenant_of_;  // by id: its index
};

// The trust domain of a SPIFFE id; what is wrong with it instead, in the second, if it is none.
struct SpiffeDomain {
  std::string domain;
  std::string wrong;
};
SpiffeDomain ParseSpiffeId(absl::string_view id);

}  // namespace switchyard
