// Connects to workers at the endpoints that they advertise and asks who answers there.
//
// Shows before a plan uses a worker what its sources would meet: a port that is closed or behind a
// firewall, an address that leads to another worker, or a server that is none of ours. What this
// process reaches others may not, so other workers are asked to connect too. Each dial has
// connections of its own, as each source has. Thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "core/base/clock.h"
#include "services/security/transport_security.h"

namespace switchyard {

class WorkerDialer {
 public:
  // `timeout` bounds the dial, and each question to a witness (services/worker/peer_dial.h).
  // `security`: null for plain connections.
  explicit WorkerDialer(Duration timeout,
                        std::shared_ptr<const TransportSecurity> security = nullptr);
  // Cancels the dials that run and waits for their answers.
  ~WorkerDialer();
  WorkerDialer(const WorkerDialer&) = delete;
  WorkerDialer& operator=(const WorkerDialer&) = delete;

  // Calls `done` once, from a thread of gRPC: OK when the worker itself has answered, and one of
  // the witnesses can connect to it or none of them answers. Errors: kUnavailable when nobody
  // answered in time, or not to a witness; kFailedPrecondition when another process did. Their
  // texts name the endpoint and what to check. Does not block.
  void Dial(const DialWorker& request, std::function<void(absl::Status)> done);

 private:
  class Call;
  class Calls;
  const Duration timeout_;
  const std::shared_ptr<const TransportSecurity> security_;
  const std::unique_ptr<Calls> calls_;
};

}  // namespace switchyard
