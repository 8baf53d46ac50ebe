#include "services/config/security_files.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/config/config_file.h"
#include "services/config/yaml_text.h"
#include "switchyard/v1/identities.pb.h"

namespace switchyard {
namespace {

// One of the messages that a table's rows are made of. An unknown word is refused by the reader.
Roles RolesOf(const v1::Identity& row) {
  Roles roles;
  for (const int role : row.roles()) {
    switch (role) {
      case v1::IDENTITY_ROLE_COORDINATOR:
        roles.Add(Role::kCoordinator);
        break;
      case v1::IDENTITY_ROLE_WORKER:
        roles.Add(Role::kWorker);
        break;
      case v1::IDENTITY_ROLE_SOURCE:
        roles.Add(Role::kSource);
        break;
      case v1::IDENTITY_ROLE_OPERATOR:
        roles.Add(Role::kOperator);
        break;
      case v1::IDENTITY_ROLE_OBSERVER:
        roles.Add(Role::kObserver);
        break;
      default:
        break;
    }
  }
  return roles;
}

std::vector<Tenant> TenantsOf(const v1::Tenants& file) {
  std::vector<Tenant> tenants;
  tenants.reserve(static_cast<std::size_t>(file.tenants_size()));
  for (const v1::Tenant& row : file.tenants()) {
    Tenant& tenant = tenants.emplace_back();
    tenant.name = row.name();
    tenant.ids.assign(row.ids().begin(), row.ids().end());
    tenant.models.assign(row.models().begin(), row.models().end());
    if (row.limits().has_sessions()) tenant.sessions_max = row.limits().sessions();
    if (row.limits().has_tokens()) tenant.tokens_max = row.limits().tokens();
    if (row.limits().has_gateway_memory_bytes()) {
      tenant.gateway_memory_bytes_max = row.limits().gateway_memory_bytes();
    }
  }
  return tenants;
}

// To the message a list without entries is none, which means all models: the contrary of what it
// says. The text has been read into the message.
absl::Status CheckModelLists(const std::string& text, const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::vector<YAML::Node> documents, ParseYaml(text, path));
  std::size_t index = 0;
  for (const YAML::Node& tenant : documents.front()["tenants"]) {
    const YAML::Node models = tenant["models"];
    const std::string at = absl::StrCat("tenants[", index++, "].models");
    if (!models.IsDefined() || models.size() > 0) continue;
    return BadConfigAt(path, LineOf(models), at,
                       "is empty; name models, or leave the key out, which allows all");
  }
  return absl::OkStatus();
}

absl::Status AddTenants(const std::string& path, IdentityTable* table) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  v1::Tenants file;
  // Whoever mistakes the form writes a tenant's name where a key should be, or a value.
  SY_RETURN_IF_ERROR(ReadConfigText(text, path, &file, ConfigWords::kSecret));
  SY_RETURN_IF_ERROR(CheckModelLists(text, path));
  const absl::Status added = table->AddTenants(TenantsOf(file));
  if (added.ok()) return added;
  return MakeError(added.code(), Reason::kBadConfig, absl::StrCat(path, ": ", added.message()),
                   {{"file", path}});
}

std::string InDir(const std::string& dir, const char* name) { return absl::StrCat(dir, "/", name); }

}  // namespace

TlsFiles TlsFilesIn(const std::string& dir) {
  return {.ca = InDir(dir, kCaFile),
          .certificate = InDir(dir, kCertificateFile),
          .key = InDir(dir, kKeyFile)};
}

absl::StatusOr<IdentityTable> ReadIdentities(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const std::string text, ReadConfigBytes(path));
  v1::Identities file;
  SY_RETURN_IF_ERROR(ReadConfigText(text, path, &file));
  std::vector<Identity> rows;
  rows.reserve(static_cast<std::size_t>(file.identities_size()));
  for (const v1::Identity& row : file.identities()) {
    rows.push_back({row.id(), RolesOf(row), {row.pools().begin(), row.pools().end()}});
  }
  absl::StatusOr<IdentityTable> table = IdentityTable::Create(std::move(rows));
  if (table.ok()) return table;
  return MakeError(table.status().code(), Reason::kBadConfig,
                   absl::StrCat(path, ": ", table.status().message()), {{"file", path}});
}

absl::StatusOr<IdentityTable> ReadIdentities(const std::string& path, const std::string& tenants) {
  SY_ASSIGN_OR_RETURN(IdentityTable table, ReadIdentities(path));
  if (!tenants.empty()) SY_RETURN_IF_ERROR(AddTenants(tenants, &table));
  return table;
}

absl::StatusOr<std::shared_ptr<const TransportSecurity>> OpenSecurity(const std::string& dir,
                                                                      Logger* logger,
                                                                      const std::string& tenants) {
  if (dir.empty() && tenants.empty()) return nullptr;
  if (dir.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("tenants of ", tenants,
                                  " without certificates: nobody would have an id; set tls_dir"),
                     {{"file", tenants}});
  }
  const auto load = [path = InDir(dir, kIdentitiesFile), tenants] {
    return ReadIdentities(path, tenants);
  };
  SY_ASSIGN_OR_RETURN(std::shared_ptr<TableWatch> identities,
                      TableWatch::Create(load, std::make_shared<SteadyClock>(), logger));
  return TransportSecurity::Create(TlsFilesIn(dir), std::move(identities));
}

}  // namespace switchyard
