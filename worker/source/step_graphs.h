// Steps of a session inside CUDA graphs of its caller: recorded once, made whenever the graph runs,
// without a call for each. For engines whose whole forward pass is one graph.
//
//   Open -> { Add, while the caller's stream is being captured }*
//        -> { BeginLaunch -> the caller launches its graph -> EndLaunch -> a ticket }* -> Close
//
// Every rank of the group launches: its tokens and experts are in its engine's graph. The ranks'
// graphs have the same steps, with the same number of tokens in each; one that differs, or does not
// come, is an error on all ranks (StepRunner::Take of the ticket, or the next BeginLaunch).
//
// A graph is of the plan and the group of when it was opened, and goes on to run on these while it
// is open and its workers are there. StateOf says when a newer plan serves: then record again, on
// all ranks between the same two launches.
//
// The calls of one session are serialized by its caller, as those of StepRunner.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/source/step_request.h"

namespace switchyard {

class StepGraphs {
 public:
  using Id = std::uint32_t;
  static constexpr std::size_t kGraphsMax = 256;    // open in a session
  static constexpr std::uint32_t kStepsMax = 1024;  // of a graph

  virtual ~StepGraphs() = default;

  // Errors: kFailedPrecondition (UNSUPPORTED) unless all ranks of the group are in engines;
  // kResourceExhausted (NO_CREDITS) for more than kGraphsMax; those of StepRunner::LimitsOf.
  virtual absl::StatusOr<Id> Open(TimePoint now) = 0;
  // Records a step at the end. Its `stream` is being captured; its tensors are the device's, and
  // stay where they are; its number of tokens is that of all ranks. Errors: as StepRunner::Submit,
  // but ids are looked at when the graph has run; kFailedPrecondition (STAGE_ORDER) once it was
  // launched, (STALE_EPOCH) when another plan serves; those of Exchange::Record.
  virtual absl::Status Add(Id graph, const StepRequest& request) = 0;
  // The graph, which `stream` gets next, is in order with all other steps of the group's workers.
  // No other step of this worker begins before EndLaunch, which has the session's step deadline.
  // Errors: those of RankTurn::BeginLaunch; kResourceExhausted (NO_CREDITS) when too many steps are
  // not taken yet, or launches of more than kStepsMax; kFailedPrecondition (STAGE_ORDER) while a
  // launch has not ended, (STALE_EPOCH) if the group is no more.
  virtual absl::Status BeginLaunch(Id graph, void* stream) = 0;
  // The ticket is that of all steps of the graph, and is taken like a step's.
  virtual absl::StatusOr<StepTicket> EndLaunch(Id graph, void* stream) = 0;
  enum class State : std::uint8_t {
    kCurrent,    // of the plan that serves now
    kOutOfDate,  // a newer plan serves: record again
    kGone        // cannot be launched any more
  };
  virtual absl::StatusOr<State> StateOf(Id graph) = 0;
  // No launch of it runs. Errors: kFailedPrecondition (STAGE_ORDER) if one has not ended; the graph
  // stays open.
  virtual absl::Status Close(Id graph) = 0;
};

}  // namespace switchyard
