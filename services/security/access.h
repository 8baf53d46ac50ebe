// Which role may call what: one row for each method that a program of ours serves. A method without
// a row is refused to everybody, so a new one is closed until somebody decides. Pure; thread-safe.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "services/security/identity_table.h"
#include "services/security/role.h"

namespace switchyard {

// One row.
struct MethodAccess {
  // As in HTTP/2's :path, "/switchyard.v1.CoordinatorService/GetPlan".
  const char* method = nullptr;
  Roles roles = {};  // any of them is enough
};
std::span<const MethodAccess> AccessTable();

// Whether a caller with `roles` may call `method`.
bool MayCall(Roles roles, absl::string_view method);
// "operator or observer"; "nobody" for a method without a row.
std::string WhoMayCall(absl::string_view method);
// Whether the holder of `id` may call `method`. Errors: kUnauthenticated (TRANSPORT) if the table
// does not have the id, kPermissionDenied (TRANSPORT) if its roles do not have the method, or only
// the role source has it and the id is of none of the table's tenants.
absl::Status CheckCall(const IdentityTable& table, const std::string& id, absl::string_view method);
// Whether the holder of `id` may join `pool`, "" for none, as a worker. Errors: kUnauthenticated
// (TRANSPORT) if the table does not have the id, kPermissionDenied (TRANSPORT) for another pool
// than its own.
absl::Status CheckPool(const IdentityTable& table, const std::string& id, absl::string_view pool);

}  // namespace switchyard
