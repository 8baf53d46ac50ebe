// The epochs that a worker holds, and the rule that decides which of them it may keep.
//
//   PREPARE sent --ack--> prepared --COMMIT sent--> commit sent --ack--> committed
//        |                    |                          |                   |
//        `--- not wanted -----'                          `--- not wanted ----'
//               ABORT: forgotten at once                   RETIRE sent --ack--> freed
//
// ABORT needs no acknowledgement: no source ever learns of an epoch without COMMIT, so the
// worker frees it at once. A committed epoch may be in use, and its memory counts until the worker
// acknowledges RETIRE.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

// Workers report which epochs they hold, and plans get numbers above those. A number beyond this is
// nobody's: no coordinator gets there, and whoever reports it must not use up the numbers.
inline constexpr Epoch kHeldEpochMax{std::uint64_t{1} << 48};

// How far one epoch is on one worker, as far as the coordinator knows.
enum class HoldState : std::uint8_t {
  kPrepareSent,
  kPrepared,
  kCommitSent,
  kCommitted,
  kRetireSent
};

struct Hold {
  PlanHash hash;
  HoldState state = HoldState::kPrepareSent;
  // For kRetireSent: when that was, and when the epoch must be free at the latest; max(): whenever
  // the steps on it have ended.
  TimePoint retired_at{};
  TimePoint free_by = TimePoint::max();
};

using HeldEpochs = std::map<EpochKey, Hold>;  // of all deployments of one worker

// The rule for one deployment: a worker may hold the epoch that serves and the one that is being
// prepared or committed, and nothing else (I6). The epoch of a former model takes the latter's
// place as long as it is kept: no change starts until then. While nothing serves, a worker may also
// keep the newest epoch that it committed under an earlier coordinator, because sources may still
// use it. Pure.
// Holds pointers: use it within one step.
class EpochRule {
 public:
  // `serving`, `changing` and `former`, of a model that is still kept, may be null: there is none.
  EpochRule(const std::string& deployment, const PlanUpdate* serving, const PlanUpdate* changing,
            const PlanUpdate* former = nullptr)
      : deployment_(deployment), serving_(serving), changing_(changing), former_(former) {}

  // The epochs that the worker has to drop, ascending. Empty when it is clean, or when
  // every RETIRE that it needs has been sent.
  struct Drop {
    EpochKey key;
    bool retire = false;  // RETIRE; else ABORT
  };
  [[nodiscard]] std::vector<Drop> DropsOf(const HeldEpochs& holds) const;

  // True when the worker may be sent PREPARE: it holds nothing that still has to go.
  [[nodiscard]] bool HasRoom(const HeldEpochs& holds) const;

  // The first epoch that the worker must free before a new change may start; nullopt: none.
  [[nodiscard]] std::optional<Epoch> BlockingEpoch(const HeldEpochs& holds) const;

 private:
  [[nodiscard]] bool IsWanted(const EpochKey& key, const Hold& hold) const;
  [[nodiscard]] bool IsInherited(const EpochKey& key, const Hold& hold) const;

  const std::string& deployment_;
  const PlanUpdate* serving_;
  const PlanUpdate* changing_;
  const PlanUpdate* former_;
};

}  // namespace switchyard
