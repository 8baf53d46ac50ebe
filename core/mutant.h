// Seeded bugs: the tests of the tests.
//
// A build with SWITCHYARD_MUTANTS holds every bug below, each asleep until a MutantId in the
// options of the code under test wakes it; a check that does not notice an awake mutant is too
// weak. In every other build SY_MUTANT is the constant false and the ids do not exist, so that no
// shipped binary holds any of them:
//
//   if (SY_MUTANT(options_.mutant, kCommitBeforeDurable)) { ... }
#pragma once

#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace switchyard {

#ifdef SWITCHYARD_MUTANTS

enum class MutantId : std::uint8_t {
  kNone = 0,
  // Coordinator.
  kCommitBeforeDurable,  // COMMIT goes out while the plan is still being written
  kAnnounceEarly,        // sources hear of an epoch at the first CommitAck
  kRetireEarly,          // RETIRE(e-1) goes out with COMMIT(e)
  kPrepareBeforeFree,    // e+2 is prepared while e is still held
  kReuseAbortedEpoch,    // the number of an aborted epoch is given out again
  kEpochNotReserved,     // PREPARE goes out before the epoch's number is durable
  kForgetIncarnation,    // a restarted worker passes for the one that was planned
  kForgetResident,       // what a worker says it holds is not read
  kForgetAbort,          // workers are not told of an aborted epoch
  kLeaseNeverEnds,       // silence is not death
  kStaleAckCounts,       // an ACK counts whatever attempt and hash it names
  // Agent.
  kSkipPlanHash,     // a plan is staged without computing its hash
  kSkipCommitHash,   // COMMIT activates whatever was prepared under its number
  kAckBeforeStaged,  // PREPARE is acknowledged before the weights are there
  kRetireAckEarly,   // RETIRE is acknowledged, and memory freed, while sources are bound
  // Source.
  kPairFreedEarly,      // the pair of a step that was given up is used before its reply has come
  kReplyKeyIgnored,     // a reply counts for whatever its pair carries
  kReplyAcceptedTwice,  // a second copy of a reply gives its pair back while the first is read
  kLateReplyForgotten,  // the reply to a step that was given up does not give its pair back
  kSwitchBeforeBound,   // steps run under an epoch that not every worker has bound
  kReleaseEarly,        // an epoch is released while its steps are in flight
  kLostLinkForgotten,   // steps that await a lost worker are not told
  kMixedEpochs,         // chunks sent after a switch carry the new epoch's number
  // Weights.
  kSkipWeightHash,  // weights are served without comparing their hashes
  // Experts.
  kWeightsTwice,        // normal: a row is multiplied by its weight twice
  kLastRowLost,         // the last row of a reply is zeros
  kDescendingK,         // normal: the worker's experts are summed from the last k to the first
  kSlotOffByOne,        // rows go to the expert in the next slot
  kStaleEpochAccepted,  // a frame of an epoch that is not bound is served by the one that is
  kWrongPlacement,      // the experts of epoch e-1 stand in their slots under the number of e
  kGateUpSwapped,       // an expert's gate and up projections change places
  kRowsReversed,        // the rows of a reply come in reverse order
  kRowTailLost,         // the last element of each row of a reply is zero
};

#define SY_MUTANT(chosen, id) ((chosen) == ::switchyard::MutantId::id)

struct MutantName {
  MutantId id;
  const char* name;
};
// All of them, in order, kNone left out.
std::span<const MutantName> MutantNames();
// "commit_before_durable" and so on; false when there is no such mutant.
bool MutantFromName(absl::string_view name, MutantId* id);

#else

enum class MutantId : std::uint8_t { kNone = 0 };

#define SY_MUTANT(chosen, id) false

#endif

}  // namespace switchyard
