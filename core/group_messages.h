// The messages by which the ranks of a collective session find each other.
//
//   source                               worker (rank 0 .. W-1)
//     JoinRequest (to every worker, ----->       makes its memory for the group
//        that of rank 0 last)
//                  <------ JoinAnswer
//                  <------ SourceKeys    from the worker of rank 0, once all sources have joined
//     GroupKeys  ------------------------>       reaches the memory of all ranks
//                  <------ ready
//
// The ranks of a group are the plan's workers in the order of their ordinals, then those of its
// sources that are not in the process of one of these workers. A source that is shares its worker's
// rank, and its key is empty.
// Keys let their holder write into a rank's memory: never logged. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/device_profile.h"
#include "core/ids.h"

namespace switchyard {

// How the rows of a session travel. A Source makes the runner that a grant's binding names.
enum class Binding : std::uint8_t {
  kP2p = 0,        // frames between the source and each worker, through rings with credits
  kGateway = 1,    // whole steps through one worker, which is the source on the caller's behalf
  kCollective = 2  // in lockstep with the workers' devices, which exchange rows by themselves
};
// For texts and metrics.
absl::string_view BindingName(Binding binding);  // "p2p", "gateway", "collective"

// How the rows of a session are to travel. kAuto: collective for a source that names a group which
// can be, else p2p.
enum class BindingChoice : std::uint8_t { kAuto = 0, kP2p = 1, kCollective = 2 };
// Groups of sources are not larger: each of them is a rank on a device of its own.
inline constexpr std::int32_t kGroupSourcesMax = 8;

// Bounds GroupRequest::obstacle, in bytes.
inline constexpr std::size_t kGroupObstacleMax = 512;

// The sources that make their steps together: those that ask for the same name. One alone needs no
// name, except with kAuto.
struct GroupRequest {
  std::string name;
  std::int32_t source = 0;  // this one's number among them
  std::int32_t sources = 1;
  // By source, the id of the worker in whose process it is, or "" for one that is in none. The same
  // at all sources. None at all: no source is.
  std::vector<std::string> hosts = {};
  // Every source submits every step, and is waited for as long as the session's step deadline.
  // False: one that is a millisecond behind takes part without tokens.
  bool in_step = false;
  // With kAuto, the device that would be the source's rank; OpenSessionRequest::source says what
  // frames are made on. Unset: the source would take no group, as those of former releases.
  std::optional<DeviceKind> device = {};
  // With kAuto, why the source cannot be in the group, for people.
  std::string obstacle = {};
  friend bool operator==(const GroupRequest&, const GroupRequest&) = default;
};

// One forming of a group. A source that comes back gets another.
using GroupId = RandomId<struct GroupTag>;

// A source's place in the group that it was granted; `id` is empty where it was granted none.
struct GroupGrant {
  GroupId id;
  std::int32_t source = 0;
  std::int32_t sources = 0;
  std::vector<std::string> hosts = {};  // these two as GroupRequest
  bool in_step = false;
  friend bool operator==(const GroupGrant&, const GroupGrant&) = default;
};

// A worker's answer to JoinRequest (core/session_messages.h).
struct JoinAnswer {
  std::string key;  // of its memory
  std::string log;  // the way to the order of steps that it follows; empty: none so far
  friend bool operator==(const JoinAnswer&, const JoinAnswer&) = default;
};

// Also the way to the order of steps (worker/collective/step_log.h), which rank 0 chooses.
struct SourceKeys {
  std::vector<std::string> keys;  // of the sources with a rank of their own, in their order
  std::string log;
  std::uint32_t group = 0;  // the group's number in the log
  friend bool operator==(const SourceKeys&, const SourceKeys&) = default;
};

struct GroupKeys {
  std::vector<std::string> keys;  // of all ranks
  std::string log;
  std::uint32_t group = 0;
  friend bool operator==(const GroupKeys&, const GroupKeys&) = default;
};

}  // namespace switchyard
