// The thread around a worker's Agent: it dials the coordinator, keeps the lease and hands epochs to
// the runtime.
//
//   AgentChannel --sink--> bounded queue --> agent thread: Agent::Step --> AgentChannel, PlanStager
//   PlanStager --callbacks--^
//
// Thread-safe. The agent works on while the coordinator is away.
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

// What `describe` shows of a worker's own view.
struct AgentView {
  bool registered = false;
  Incarnation incarnation;
  std::vector<ResidentEpoch> resident;
  absl::Status last_stream_end;  // why the last stream ended
};

class AgentRunner {
 public:
  struct Parts {
    AgentChannel* channel = nullptr;  // all outlive the runner
    PlanStager* stager = nullptr;
    Clock* clock = nullptr;
    Rng* rng = nullptr;
    Logger* logger = nullptr;
  };

  // Starts the thread, which dials at once. `finished` is called once, from that thread, when the
  // agent has nothing more to do: OK after Goodbye or a drain that ran out of time; an error when
  // the coordinator refuses this process for good (kFailedPrecondition INCARNATION,
  // kInvalidArgument). The process is to end then.
  AgentRunner(AgentOptions options, Parts parts, std::function<void(absl::Status)> finished);
  // Closes the stream and ends the thread. The stager is not called any more.
  ~AgentRunner();
  AgentRunner(const AgentRunner&) = delete;
  AgentRunner& operator=(const AgentRunner&) = delete;

  // SIGTERM: asks to be planned out; `finished` follows within AgentOptions::drain_timeout.
  void Leave();
  [[nodiscard]] AgentView View() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
