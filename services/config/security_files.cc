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
  for (const v1::Identity& row : file.identities()) rows.push_back({row.id(), RolesOf(row)});
  absl::StatusOr<IdentityTable> table = IdentityTable::Create(std::move(rows));
  if (table.ok()) return table;
  return MakeError(table.status().code(), Reason::kBadConfig,
                   absl::StrCat(path, ": ", table.status().message()), {{"file", path}});
}

absl::StatusOr<std::shared_ptr<const TransportSecurity>> OpenSecurity(const std::string& dir,
                                                                      Logger* logger) {
  if (dir.empty()) return nullptr;
  SY_ASSIGN_OR_RETURN(
      std::shared_ptr<TableWatch> identities,
      TableWatch::Create([path = InDir(dir, kIdentitiesFile)] { return ReadIdentities(path); },
                         std::make_shared<SteadyClock>(), logger));
  return TransportSecurity::Create(TlsFilesIn(dir), std::move(identities));
}

}  // namespace switchyard
