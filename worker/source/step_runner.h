// StepRunner: how the steps of one session run. One implementation for each binding.
//
//   p2p      frames to each worker through rings with credits        worker/source/p2p
//   gateway  whole steps through one worker, over gRPC               worker/source/gateway
//   (A lockstep group, such as an NCCL communicator, is a third: docs/adr/0007-step-runner.md.)
//
//   Start -> Poll until kReady -> { Submit -> Poll until IsDone -> Take }* -> Close
//
// Threads. The caller serializes all calls of one runner: a Source makes them under its progress
// mutex, from the thread that waits for a step or from its own. No call blocks: what takes time is
// begun, and Poll carries it on. Only giving a step up (Take) and Close may wait, for a device that
// still uses the memory that they give back. Other threads (of a channel, of a device) never call a
// runner; they leave an event in the runner's own queue and call `wake`, upon which the caller
// polls.
//
// Progress. Poll does all of it: it takes events, sends what has room to be sent, sums what has
// arrived, ends what is overdue. The caller must poll after a wake, at wake_at, and while it waits
// for a step. A runner whose device or communicator advances by itself only looks at its events
// there; it may not rely on Poll for anything that a peer waits for without a deadline. A runner
// with links has their frames delivered by the transport that its Source drives: the owner of such
// a link is a FrameSink (transport.h), which belongs to the runner.
//
// Epochs. OnPlan announces a plan that is committed on all of its workers. The runner prepares for
// it beside the steps in flight and switches between two steps; a step runs wholly on the epoch on
// which it was submitted. When a runner switches is its own matter: p2p once every worker has bound
// the epoch; a lockstep group at the same step number in every participant, agreed before that step
// is submitted anywhere, because a participant that enters a collective on another epoch hangs all
// others. The old epoch is let go of once its last step has ended and, in a group, once every
// participant has acknowledged that. A plan that cannot be used leaves the current one in place.
//
// Tokens. A step of zero tokens is a step. To p2p and gateway it costs nothing. In a lockstep group
// every participant submits every step, so an idle one submits zero tokens, and the runner may add
// such a step by itself where the group's contract has it keep pace.
//
// Memory. x, ids, weights and y are pointers that the session's device can reach: host memory for
// p2p and gateway (worker/source/staged runs both for tensors on a device, and leaves x and y of
// large steps of p2p there), device memory for a group on devices, on whose stream the step is then
// ordered.
// Neither the runner nor its caller waits for such a stream inside Submit, so a whole layer
// (dispatch, experts, combine) may be one captured graph; a captured step keeps its tickets, and
// IsDone queries the event that ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/session_messages.h"
#include "worker/source/runner_status.h"
#include "worker/source/step_graphs.h"
#include "worker/source/step_request.h"
#include "worker/source/step_validation.h"

namespace switchyard {

// The outcome of one Poll.
struct RunnerProgress {
  enum class State : std::uint8_t {
    kOpening,  // not connected yet; `why` says so, with the last obstacle
    kReady,    // was connected once: steps can be submitted
    kFailed    // cannot be opened: `why` is final
  };
  State state = State::kOpening;
  absl::Status why;
  bool worked = false;     // poll again before sleeping
  bool has_links = false;  // sleeps must be short: a peer's message may come without a wake
  TimePoint wake_at = TimePoint::max();  // when to poll again at the latest; set if !worked
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Begins to connect for the granted plan. Errors: kFailedPrecondition (BAD_CONFIG, UNSUPPORTED)
  // for a plan that this source can never run.
  virtual absl::Status Start(TimePoint now) = 0;
  // Ignored unless it is newer than every plan before.
  virtual void OnPlan(const PlanUpdate& update, TimePoint now) = 0;
  virtual RunnerProgress Poll(TimePoint now) = 0;

  // Validates and plans the step, and sends what can be sent at once. After an error nothing was
  // sent and nothing will be written. Errors: those of ValidateStep; kInvalidArgument
  // (EXPERT_OUT_OF_RANGE, DUPLICATE_EXPERT); kUnavailable (WORKER_LOST) when a worker that the step
  // needs is gone; kResourceExhausted (NO_CREDITS) when too many steps are not taken yet;
  // kFailedPrecondition (SESSION_CLOSED) after Close.
  virtual absl::StatusOr<StepTicket> Submit(const StepRequest& request, TimePoint now) = 0;
  // The limits of a step of `layer`, on the plan of now. Errors: kNotFound (UNKNOWN_LAYER);
  // why no step can be submitted now, as Submit says it.
  [[nodiscard]] virtual absl::StatusOr<StepLimits> LimitsOf(LayerId layer) const = 0;
  // Steps are in flight that go on by events of a device, and end for callers who may come back
  // late. So somebody has to poll after wakes, also while no caller waits for a step.
  [[nodiscard]] virtual bool awaits_device() const { return false; }
  // Submit or Poll stopped after a piece of work, so that its caller may let others go first; Poll
  // goes on.
  [[nodiscard]] virtual bool put_off() const { return false; }
  // Whether Take would give the result. Every step ends: with its result, or with an error at its
  // deadline at the latest (kUnavailable, STEP_DEADLINE). It is done as soon as a peer that it
  // needs is known to be lost. Errors: kFailedPrecondition (STAGE_ORDER) for a ticket that was
  // taken or never given out.
  [[nodiscard]] virtual absl::StatusOr<bool> IsDone(const StepTicket& ticket) const = 0;
  // Uses the ticket of a step that is done. OK: y is complete. Otherwise y holds anything. Nothing
  // writes to y any more. A step that is not done is given up at once (kCancelled); a runner that
  // cannot take a step back from its group refuses (kFailedPrecondition, STAGE_ORDER), and the
  // ticket stays good until the step ends by its deadline.
  virtual absl::Status Take(const StepTicket& ticket, TimePoint now) = 0;

  // Steps in graphs of the caller; null: this runner has none.
  virtual StepGraphs* graphs() { return nullptr; }

  // Fails what is in flight (SESSION_CLOSED) and lets go of every connection, and of the transport,
  // at once. Idempotent. Afterwards only IsDone, Take and Status may be called; the destructor may
  // run without the lock that the other calls need.
  virtual void Close(TimePoint now) = 0;
  // The epoch of the plan that steps run on now; 0 while the session opens.
  [[nodiscard]] virtual Epoch epoch() const = 0;
  // Copies the plan: for reports, not for every step.
  [[nodiscard]] virtual RunnerStatus Status() const = 0;
};

// Makes the runner that `grant.binding` names. `wake` may be called from any thread. Errors:
// kUnimplemented (UNSUPPORTED) when this program has no such runner.
using RunnerFactory = std::function<absl::StatusOr<std::unique_ptr<StepRunner>>(
    SessionGrant grant, std::function<void()> wake)>;

}  // namespace switchyard
