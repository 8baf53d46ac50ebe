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

namespace switchyard {

class GroupTable {
 public:
  // At most so many groups with several sources are kept.
  static constexpr std::size_t kGroupsMax = 1024;
  // And of one caller, where callers are known: a session that is closed leaves its group here for
  // a while, so that limits of sessions do not bound them.
  static constexpr std::size_t kGroupsOfCallerMax = 64;

  // `request` is complete and wants a group. Errors: kInvalidArgument (BAD_CONFIG) for a source
  // that means another group than those before it: another number of sources, phase, mode (R40),
  // max_tokens or kind; kResourceExhausted (TOO_MANY_SESSIONS).
  absl::StatusOr<GroupGrant> Claim(const OpenSessionRequest& request, Epoch epoch, Rng* rng,
                                   TimePoint now);

 private:
  struct Forming {
    GroupId id;
    OpenSessionRequest first;  // of the source that began it
    Epoch epoch;
    std::vector<bool> claimed;
    TimePoint begun;
  };
  // Whether `caller` may begin another group. Errors: kResourceExhausted (TOO_MANY_SESSIONS).
  [[nodiscard]] absl::Status CheckRoom(const std::string& caller) const;

  // (deployment, name and caller)
  std::map<std::pair<std::string, std::string>, Forming> forming_;
};

}  // namespace switchyard
