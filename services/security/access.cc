#include "services/security/access.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr Roles kChanges{Role::kOperator};
constexpr Roles kSees{Role::kOperator, Role::kObserver};
// A gateway opens sessions for its callers, so workers are sources too.
constexpr Roles kSessions{Role::kSource, Role::kWorker};
constexpr Roles kAnyone{Role::kCoordinator, Role::kWorker, Role::kSource, Role::kOperator,
                        Role::kObserver};

constexpr MethodAccess kTable[] = {
    {"/switchyard.v1.CoordinatorService/ApplyDeployment", kChanges},
    {"/switchyard.v1.CoordinatorService/DeleteDeployment", kChanges},
    {"/switchyard.v1.CoordinatorService/RollbackDeployment", kChanges},
    {"/switchyard.v1.CoordinatorService/CordonWorker", kChanges},
    {"/switchyard.v1.CoordinatorService/DrainWorker", kChanges},
    {"/switchyard.v1.CoordinatorService/UncordonWorker", kChanges},
    {"/switchyard.v1.CoordinatorService/GetDeployment", kSees},
    {"/switchyard.v1.CoordinatorService/ListDeployments", kSees},
    {"/switchyard.v1.CoordinatorService/ListRevisions", kSees},
    {"/switchyard.v1.CoordinatorService/ListModels", kSees},
    {"/switchyard.v1.CoordinatorService/ListWorkers", kSees},
    {"/switchyard.v1.CoordinatorService/ListEvents", kSees},
    {"/switchyard.v1.CoordinatorService/ListSessions", kSees},
    {"/switchyard.v1.CoordinatorService/GetLoad", kSees},
    {"/switchyard.v1.CoordinatorService/GetPlan", kSees},
    {"/switchyard.v1.CoordinatorService/ExplainLayer", kSees},
    {"/switchyard.v1.CoordinatorService/GetMetrics", kSees},
    {"/switchyard.v1.CoordinatorService/GetVersion", kAnyone},
    {"/switchyard.v1.CoordinatorService/OpenSession", kSessions},
    {"/switchyard.v1.CoordinatorService/CloseSession", kSessions},
    {"/switchyard.v1.CoordinatorService/WatchPlan", kSessions},
    {"/switchyard.v1.WorkerControlService/Session", {Role::kWorker}},
    {"/switchyard.v1.ExpertService/Attach", kSessions},
    {"/switchyard.v1.ExpertService/JoinGroup", {Role::kSource}},
    {"/switchyard.v1.ExpertService/Forward", {Role::kSource}},
    {"/switchyard.v1.ExpertService/Identify", {Role::kCoordinator, Role::kWorker}},
    {"/switchyard.v1.ExpertService/DialPeer", {Role::kCoordinator}},
    {"/switchyard.v1.ExpertService/GetStatus",
     {Role::kOperator, Role::kObserver, Role::kSource, Role::kWorker}},
    {"/grpc.health.v1.Health/Check", kAnyone},
    {"/grpc.health.v1.Health/Watch", kAnyone},
    // Clients ask for it first, and for v1alpha once the answer is UNIMPLEMENTED.
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", kChanges},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kChanges},
};

const MethodAccess* Find(absl::string_view method) {
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable),
                                 [&](const MethodAccess& each) { return each.method == method; });
  return row == std::end(kTable) ? nullptr : row;
}

absl::Status Unknown(const std::string& id) {
  return MakeError(absl::StatusCode::kUnauthenticated, Reason::kTransport,
                   absl::StrCat("the server's table of identities does not have ", id),
                   {{"id", id}});
}

}  // namespace

absl::string_view RoleName(Role role) {
  static constexpr const char* kNames[kRoleCount] = {"coordinator", "worker", "source", "operator",
                                                     "observer"};
  return kNames[static_cast<std::size_t>(role)];
}

std::span<const MethodAccess> AccessTable() { return kTable; }

bool MayCall(Roles roles, absl::string_view method) {
  const MethodAccess* row = Find(method);
  return row != nullptr && row->roles.Meets(roles);
}

std::string WhoMayCall(absl::string_view method) {
  const MethodAccess* row = Find(method);
  std::vector<absl::string_view> names;
  for (std::size_t i = 0; row != nullptr && i < kRoleCount; ++i) {
    const auto role = static_cast<Role>(i);
    if (row->roles.Has(role)) names.push_back(RoleName(role));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, " or ");
}

absl::Status CheckCall(const IdentityTable& table, const std::string& id,
                       absl::string_view method) {
  const Identity* caller = table.Find(id);
  if (caller == nullptr) return Unknown(id);
  if (MayCall(caller->roles, method)) {
    const bool as_source = !MayCall(caller->roles.Without(Role::kSource), method);
    if (!as_source || !table.has_tenants() || table.TenantOf(id) != nullptr) {
      return absl::OkStatus();
    }
    return MakeError(
        absl::StatusCode::kPermissionDenied, Reason::kTransport,
        absl::StrCat(id, " may not call ", method,
                     ": the server has a file of tenants, and the id is in none of them; add it"),
        {{"id", id}});
  }
  return MakeError(absl::StatusCode::kPermissionDenied, Reason::kTransport,
                   absl::StrCat(id, " may not call ", method, "; ", WhoMayCall(method), " may"),
                   {{"id", id}});
}

absl::Status CheckPool(const IdentityTable& table, const std::string& id, absl::string_view pool) {
  const Identity* caller = table.Find(id);
  if (caller == nullptr) return Unknown(id);
  const std::vector<std::string>& own = caller->pools;
  if (own.empty() || std::find(own.begin(), own.end(), pool) != own.end()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kPermissionDenied, Reason::kTransport,
      absl::StrCat(
          id, " may not join ", pool.empty() ? "without a pool" : "pool ", pool, ", only pool ",
          absl::StrJoin(own, " or "),
          "; give this worker a certificate of its own pool, or change the pools of the id "
          "in the coordinator's table of identities"),
      {{"id", id}, {"pool", std::string(pool)}});
}

}  // namespace switchyard
