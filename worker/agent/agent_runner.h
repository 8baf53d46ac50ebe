// The thread that runs a worker's Agent. It connects to the coordinator, renews the lease and
// passes epochs to the runtime.
//
//   AgentChannel --sink--> bounded queue --> agent thread: Agent::Step --> AgentChannel, PlanStager
//   PlanStager --callbacks--^
//
// Thread-safe. Epochs keep serving while the coordinator is unreachable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/rng.h"
#include "worker/agent/agent_channel.h"
#include "worker/agent/agent_options.h"
#include "worker/agent/plan_stager.h"

namespace switchyard {

// The agent's state as the worker's status reports it.
struct AgentView {
  bool registered = false;
  Incarnation incarnation;
  std::vector<ResidentEpoch> resident;
  absl::Status last_stream_end;  // why the last stream ended
};

class AgentRunner {
 public:
  struct Parts {
    AgentChannel* channel = nullptr;  // all must outlive the runner
    PlanStager* stager = nullptr;
    Clock* clock = nullptr;
    Rng* rng = nullptr;
    Logger* logger = nullptr;
  };

  // Starts the thread, which connects immediately. `finished` is called at most once, from that
  // thread, when the process should end: OK after Goodbye or after the drain timeout; an error if
  // the coordinator permanently refuses this process (kFailedPrecondition INCARNATION,
  // kInvalidArgument).
  AgentRunner(AgentOptions options, Parts parts, std::function<void(absl::Status)> finished);
  // Closes the stream and ends the thread. The stager is not called after that.
  ~AgentRunner();
  AgentRunner(const AgentRunner&) = delete;
  AgentRunner& operator=(const AgentRunner&) = delete;

  // Requests a plan without this worker. `finished` is called within the sum of
  // AgentOptions::leave_timeout and leave_alone_timeout. Does not block.
  void Leave();
  // A consistent snapshot, for status requests.
  [[nodiscard]] AgentView View() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
