#include "coordinator/sessions/group_table.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr Duration kFormingMax = std::chrono::minutes(1);

// All sources of a group have to want the same of these.
bool MeansSame(const OpenSessionRequest& a, const OpenSessionRequest& b) {
  return a.group.sources == b.group.sources && a.group.hosts == b.group.hosts &&
         a.group.in_step == b.group.in_step && a.phase == b.phase && a.mode == b.mode &&
         a.max_tokens == b.max_tokens && a.source == b.source;
}

GroupGrant GrantOf(const GroupRequest& group, const GroupId& id) {
  return {.id = id,
          .source = group.source,
          .sources = group.sources,
          .hosts = group.hosts,
          .in_step = group.in_step};
}

std::string TextOf(const OpenSessionRequest& request) {
  const std::vector<std::string>& hosts = request.group.hosts;
  return absl::StrFormat("%d sources of kind %s%s%s, phase %s, mode %s, max_tokens %d",
                         request.group.sources, DeviceKindName(request.source),
                         hosts.empty() ? "" : absl::StrCat(" at ", absl::StrJoin(hosts, ",")),
                         request.group.in_step ? " in step" : "", PhaseName(request.phase),
                         DispatchModeName(*request.mode), request.max_tokens);
}

}  // namespace

absl::Status GroupTable::CheckRoom(const std::string& user, const Tenant* tenant) const {
  const auto is_own = [&](const auto& entry) {
    const std::string& other = entry.second.user;
    if (tenant == nullptr) return other == user;
    return std::find(tenant->ids.begin(), tenant->ids.end(), other) != tenant->ids.end();
  };
  const auto own =
      static_cast<std::size_t>(std::count_if(forming_.begin(), forming_.end(), is_own));
  const bool full = forming_.size() >= kGroupsMax;
  if (!full && (user.empty() || own < kGroupsOfCallerMax)) return absl::OkStatus();
  const std::string whose = absl::StrCat(tenant == nullptr ? " of " : " of the tenant of ", user);
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                   absl::StrFormat("%d groups%s wait for their sources; try again in a minute",
                                   full ? forming_.size() : own, full ? "" : whose));
}

absl::StatusOr<GroupGrant> GroupTable::Claim(const OpenSessionRequest& request,
                                             const Tenant* tenant, Epoch epoch, Rng* rng,
                                             TimePoint now) {
  const GroupRequest& group = request.group;
  if (group.sources == 1) {
    return GrantOf(group, rng->NextId<GroupId>());
  }
  std::erase_if(forming_, [&](const auto& entry) {
    const Forming& forming = entry.second;
    const bool complete =
        std::find(forming.claimed.begin(), forming.claimed.end(), false) == forming.claimed.end();
    return complete || now - forming.begun > kFormingMax;
  });
  const std::string& user = request.on_behalf_of.empty() ? request.caller : request.on_behalf_of;
  // Another caller's group of the same name is another one. No id and no name has a blank.
  const std::pair key(request.deployment, absl::StrCat(group.name, " ", user));
  auto at = forming_.find(key);
  const auto source = static_cast<std::size_t>(group.source);
  if (at != forming_.end() && !MeansSame(at->second.first, request)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("group %s of deployment %s: source %d opened its session with %s, and "
                        "source %d with %s; open the sessions of all sources alike",
                        group.name, request.deployment, at->second.first.group.source,
                        TextOf(at->second.first), group.source, TextOf(request)),
        {{"deployment", request.deployment}, {"group", group.name}});
  }
  const bool again =
      at != forming_.end() && (at->second.claimed[source] || at->second.epoch != epoch);
  if (at == forming_.end() || again) {
    if (at == forming_.end()) SY_RETURN_IF_ERROR(CheckRoom(user, tenant));
    Forming begun{.id = rng->NextId<GroupId>(),
                  .first = request,
                  .user = user,
                  .epoch = epoch,
                  .claimed = std::vector<bool>(static_cast<std::size_t>(group.sources)),
                  .begun = now};
    at = forming_.insert_or_assign(key, std::move(begun)).first;
  }
  at->second.claimed[source] = true;
  return GrantOf(group, at->second.id);
}

}  // namespace switchyard
