// The seam between a worker's agent and its runtime: what PREPARE, COMMIT, ABORT and RETIRE do to
// the weights, buffers and layer runtimes of an epoch.
//
//   StagePlan --> done(OK) --> Activate --> Retire --> unbound() --> Drop
//        |            `------------------------------------------ -> Drop   (ABORT)
//        `------> done(error): nothing is left of it
//
// All calls come from the agent's thread, one at a time, and return quickly; work is done
// elsewhere. Callbacks may come from any thread, also from within the call, at most once each; one
// that comes after Drop is ignored.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

#include "core/control_messages.h"

namespace switchyard {

class PlanStager {
 public:
  virtual ~PlanStager() = default;
  // Loads and verifies the weights that `prepare` gives to this worker and makes everything that
  // serving needs: after done(OK), Activate can neither fail nor allocate. `prepare.hash` is that
  // of its plan. Errors for `done`: kDataLoss (WEIGHT_HASH, CHECKPOINT) naming the tensor,
  // kResourceExhausted (OUT_OF_MEMORY), kUnimplemented (UNSUPPORTED).
  virtual void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) = 0;
  // Sources may bind to the epoch from now on.
  virtual void Activate(const EpochKey& key) = 0;
  // No new bindings; calls `unbound` when the last one is gone, which the runtime brings about by
  // closing what is still bound after its own time-out.
  virtual void Retire(const EpochKey& key, std::function<void()> unbound) = 0;
  // Frees all of the epoch, staged, active or still being staged.
  virtual void Drop(const EpochKey& key) = 0;
  // Grows with every step of the data threads. Thread-safe.
  [[nodiscard]] virtual std::uint64_t Progress() const = 0;
};

}  // namespace switchyard
