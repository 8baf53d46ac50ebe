// The seam between a worker's agent and its runtime. PREPARE, COMMIT, ABORT and RETIRE become calls
// that manage the weights, buffers and layer runtimes of an epoch.
//
//   StagePlan --> done(OK) --> Activate --> Retire --> unbound() --> Drop
//        |            `------------------------------------------ -> Drop   (ABORT)
//        `------> done(error): the epoch holds nothing any more
//
// All calls come from the agent's thread, one at a time. They must return quickly, because this
// thread also renews the lease; the work belongs on other threads. Each callback is called at most
// once, from any thread, possibly before the call returns. A callback after Drop is ignored.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/control_messages.h"

namespace switchyard {

class PlanStager {
 public:
  virtual ~PlanStager() = default;
  // Loads and verifies the weights that `prepare` assigns to this worker and allocates everything
  // that serving needs: after done(OK), Activate can neither fail nor allocate. `prepare.hash` is
  // the hash of `prepare.plan`. Errors for `done`: kDataLoss (WEIGHT_HASH, CHECKPOINT) with the
  // tensor's name, kResourceExhausted (OUT_OF_MEMORY), kUnimplemented (UNSUPPORTED).
  virtual void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) = 0;
  // Sources may bind to the epoch from now on.
  virtual void Activate(const EpochKey& key) = 0;
  // Refuses new bindings and calls `unbound` when the last one is gone. The runtime guarantees that
  // this happens: it ends the bindings of sources that keep one beyond the deadlines of their
  // steps.
  virtual void Retire(const EpochKey& key, std::function<void()> unbound) = 0;
  // After Retire: ends the bindings that are left `within` from now.
  virtual void ShortenRetire(const EpochKey& key, Duration within) = 0;
  // Frees the whole epoch, whether it is active, staged or still being staged.
  virtual void Drop(const EpochKey& key) = 0;
  // Steps are traced so from now on; before, none is.
  virtual void UseTracing(const TraceSettings& settings) = 0;
  // Shows the coordinator whether the data thread and the device work, since the agent renews the
  // lease without them, and how far the epochs are that it stages. Thread-safe.
  [[nodiscard]] virtual Heartbeat MakeHeartbeat() const = 0;
  // A source binds some epoch here, or did a turn of the data thread ago. Thread-safe.
  [[nodiscard]] virtual bool IsInUse() const = 0;
};

}  // namespace switchyard
