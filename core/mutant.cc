#include "core/mutant.h"

#ifdef SWITCHYARD_MUTANTS

#include <array>

namespace switchyard {
namespace {

constexpr std::array kNames = {
    MutantName{MutantId::kCommitBeforeDurable, "commit_before_durable"},
    MutantName{MutantId::kAnnounceEarly, "announce_early"},
    MutantName{MutantId::kRetireEarly, "retire_early"},
    MutantName{MutantId::kPrepareBeforeFree, "prepare_before_free"},
    MutantName{MutantId::kReuseAbortedEpoch, "reuse_aborted_epoch"},
    MutantName{MutantId::kEpochNotReserved, "epoch_not_reserved"},
    MutantName{MutantId::kForgetIncarnation, "forget_incarnation"},
    MutantName{MutantId::kForgetResident, "forget_resident"},
    MutantName{MutantId::kForgetAbort, "forget_abort"},
    MutantName{MutantId::kLeaseNeverEnds, "lease_never_ends"},
    MutantName{MutantId::kStaleAckCounts, "stale_ack_counts"},
    MutantName{MutantId::kSkipPlanHash, "skip_plan_hash"},
    MutantName{MutantId::kSkipCommitHash, "skip_commit_hash"},
    MutantName{MutantId::kAckBeforeStaged, "ack_before_staged"},
    MutantName{MutantId::kRetireAckEarly, "retire_ack_early"},
    MutantName{MutantId::kPairFreedEarly, "pair_freed_early"},
    MutantName{MutantId::kReplyKeyIgnored, "reply_key_ignored"},
    MutantName{MutantId::kReplyAcceptedTwice, "reply_accepted_twice"},
    MutantName{MutantId::kLateReplyForgotten, "late_reply_forgotten"},
    MutantName{MutantId::kSwitchBeforeBound, "switch_before_bound"},
    MutantName{MutantId::kReleaseEarly, "release_early"},
    MutantName{MutantId::kLostLinkForgotten, "lost_link_forgotten"},
    MutantName{MutantId::kMixedEpochs, "mixed_epochs"},
    MutantName{MutantId::kSkipWeightHash, "skip_weight_hash"},
    MutantName{MutantId::kWeightsTwice, "weights_twice"},
    MutantName{MutantId::kLastRowLost, "last_row_lost"},
    MutantName{MutantId::kDescendingK, "descending_k"},
    MutantName{MutantId::kSlotOffByOne, "slot_off_by_one"},
    MutantName{MutantId::kStaleEpochAccepted, "stale_epoch_accepted"},
    MutantName{MutantId::kWrongPlacement, "wrong_placement"},
    MutantName{MutantId::kGateUpSwapped, "gate_up_swapped"},
    MutantName{MutantId::kRowsReversed, "rows_reversed"},
    MutantName{MutantId::kRowTailLost, "row_tail_lost"},
};

}  // namespace

std::span<const MutantName> MutantNames() { return kNames; }

bool MutantFromName(absl::string_view name, MutantId* id) {
  for (const MutantName& row : kNames) {
    if (name == row.name) {
      *id = row.id;
      return true;
    }
  }
  return false;
}

}  // namespace switchyard

#endif
