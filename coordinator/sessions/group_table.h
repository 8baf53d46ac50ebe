// The groups that sources of collective sessions are about to form: those that name the same group
// get the same id, each its own place.
//
// A group is complete when every place is claimed. Whoever comes after that, or comes twice, is of
// the group's next forming: it gets another id, as do the others when they come back. One that
// stays incomplete is forgotten after a minute, so that sources that died do not stand in the way.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/rng.h"
#include "core/session_messages.h"
#include "core/tenants/tenant.h"

namespace switchyard {

class GroupTable {
 public:
  // At most so many groups with several sources are kept.
  static constexpr std::size_t kGroupsMax = 1024;
  // And of one caller, or of all callers of one tenant: a session that is closed leaves its group
  // here for a while, so that limits of sessions do not bound them.
  static constexpr std::size_t kGroupsOfCallerMax = 64;

  // `request` is complete and wants a group; `tenant` is that of whoever it is for, or null. What a
  // gateway opens for a caller is the caller's, not the gateway's. Errors: kInvalidArgument
  // (BAD_CONFIG) for a source that means another group than those before it: another number of
  // sources, other hosts, in step or not, phase, mode (R40), max_tokens or kind; kResourceExhausted
  // (TOO_MANY_SESSIONS).
  absl::StatusOr<GroupGrant> Claim(const OpenSessionRequest& request, const Tenant* tenant,
                                   Epoch epoch, Rng* rng, TimePoint now);

 private:
  struct Forming {
    GroupId id;
    OpenSessionRequest first;  // of the source that began it
    std::string user;          // who it is for
    Epoch epoch;
    std::vector<bool> claimed;
    TimePoint begun;
  };
  // Whether `user`, of `tenant`, may begin another group. Errors: kResourceExhausted
  // (TOO_MANY_SESSIONS).
  [[nodiscard]] absl::Status CheckRoom(const std::string& user, const Tenant* tenant) const;

  // (deployment, name and user)
  std::map<std::pair<std::string, std::string>, Forming> forming_;
};

}  // namespace switchyard
