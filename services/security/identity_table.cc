#include "services/security/identity_table.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/name.h"

namespace switchyard {
namespace {

constexpr absl::string_view kScheme = "spiffe://";

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("identities: ", what), {});
}

absl::Status BadTenants(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, what, {});
}

bool IsDomainCharacter(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) ||
         absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}
// Segments may have capital letters, domains may not.
bool IsPathCharacter(char c) {
  return IsDomainCharacter(c) || absl::ascii_isupper(static_cast<unsigned char>(c));
}

// Empty: nothing.
std::string WrongPools(const Identity& row) {
  if (row.pools.empty()) return "";
  if (!row.roles.Has(Role::kWorker)) return "has pools, but not the role worker, which joins them";
  for (const std::string& pool : row.pools) {
    if (!IsName(pool)) {
      return absl::StrCat("has pool \"", pool, "\"; needs 1 to 128 characters of [A-Za-z0-9._-]");
    }
  }
  return "";
}

std::string WrongPath(absl::string_view path) {
  if (path.empty()) return "it has no path after its trust domain";
  for (const absl::string_view segment : absl::StrSplit(path, '/')) {
    if (segment.empty() || segment == "." || segment == "..") {
      return "a part of its path is empty, . or ..";
    }
    for (const char c : segment) {
      if (!IsPathCharacter(c)) return "its path has a character other than letters, digits, . - _";
    }
  }
  return "";
}

}  // namespace

SpiffeDomain ParseSpiffeId(absl::string_view id) {
  if (id.size() > kSpiffeIdBytesMax) return {"", "it is longer than 2048 bytes"};
  if (!absl::StartsWith(id, kScheme)) return {"", "it does not begin with spiffe://"};
  id.remove_prefix(kScheme.size());
  const std::size_t slash = id.find('/');
  const absl::string_view domain = id.substr(0, slash);
  if (domain.empty()) return {"", "it has no trust domain"};
  for (const char c : domain) {
    if (!IsDomainCharacter(c)) {
      return {"", "its trust domain has a character other than small letters, digits, . - _"};
    }
  }
  const absl::string_view path =
      slash == absl::string_view::npos ? absl::string_view() : id.substr(slash + 1);
  if (std::string wrong = WrongPath(path); !wrong.empty()) return {"", std::move(wrong)};
  return {std::string(domain), ""};
}

absl::Status IdentityTable::AddTenants(std::vector<Tenant> tenants) {
  if (tenants.empty()) return BadTenants("the list is empty, so no source could call; add tenants");
  std::map<std::string, std::size_t> names;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    const Tenant& tenant = tenants[i];
    const std::string at = absl::StrCat("tenants[", i, "]");
    if (!IsName(tenant.name)) {
      return BadTenants(absl::StrCat(at, ".name: needs 1 to 128 characters of [A-Za-z0-9._-]"));
    }
    const auto [same_name, new_name] = names.emplace(tenant.name, i);
    if (!new_name) {
      return BadTenants(absl::StrCat(at, ".name: is that of tenants[", same_name->second, "]"));
    }
    if (tenant.ids.empty()) return BadTenants(absl::StrCat(at, ".ids: needs the ids of callers"));
    for (const std::string& id : tenant.ids) {
      if (const SpiffeDomain parsed = ParseSpiffeId(id); !parsed.wrong.empty()) {
        return BadTenants(absl::StrCat(at, ".ids: \"", id, "\" is no SPIFFE id: ", parsed.wrong));
      }
      const auto [same_id, new_id] = tenant_of_.emplace(id, i);
      if (!new_id) {
        return BadTenants(absl::StrCat(at, ".ids: ", id, " is there twice, first in tenants[",
                                       same_id->second, "]; an id has one tenant"));
      }
    }
    for (const std::string& model : tenant.models) {
      if (!IsName(model)) return BadTenants(absl::StrCat(at, ".models: one is no name of a model"));
    }
  }
  if (tenant_of_.size() > kIdentitiesMax) {
    return BadTenants(absl::StrCat(tenant_of_.size(), " ids; at most ", kIdentitiesMax));
  }
  tenants_ = std::move(tenants);
  return absl::OkStatus();
}

const Tenant* IdentityTable::TenantOf(absl::string_view id) const {
  const auto found = tenant_of_.find(id);
  return found == tenant_of_.end() ? nullptr : &tenants_[found->second];
}

absl::StatusOr<IdentityTable> IdentityTable::Create(std::vector<Identity> identities) {
  if (identities.empty()) return Bad("the table is empty, so nobody could call; add the callers");
  if (identities.size() > kIdentitiesMax) {
    return Bad(absl::StrCat(identities.size(), " rows; at most ", kIdentitiesMax, " are taken"));
  }
  IdentityTable table;
  for (Identity& each : identities) {
    SpiffeDomain parsed = ParseSpiffeId(each.id);
    if (!parsed.wrong.empty()) {
      return Bad(absl::StrCat("\"", each.id, "\" is no SPIFFE id: ", parsed.wrong));
    }
    if (each.roles.empty()) return Bad(absl::StrCat(each.id, " has no role"));
    if (const std::string wrong = WrongPools(each); !wrong.empty()) {
      return Bad(absl::StrCat(each.id, " ", wrong));
    }
    if (table.trust_domain_.empty()) table.trust_domain_ = parsed.domain;
    if (parsed.domain != table.trust_domain_) {
      return Bad(absl::StrCat(each.id, " is of trust domain ", parsed.domain, ", others are of ",
                              table.trust_domain_, "; a table has one"));
    }
    std::string id = each.id;
    if (!table.identities_.emplace(id, std::move(each)).second) {
      return Bad(absl::StrCat(id, " is there twice; give it all its roles in one row"));
    }
  }
  return table;
}

const Identity* IdentityTable::Find(absl::string_view id) const {
  const auto found = identities_.find(id);
  return found == identities_.end() ? nullptr : &found->second;
}

}  // namespace switchyard
