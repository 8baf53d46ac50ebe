// Where an engine begins: one Client for a deployment's coordinator (or a gateway worker), sessions
// from it.
//
// Connect wires gRPC channels and a UCX transport; Over takes parts from elsewhere (a loopback
// deployment, tests). Nothing is read from the environment. Thread-safe.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"

#include "client/moe_session.h"
#include "core/base/clock.h"
#include "core/rng.h"
#include "worker/source/source.h"
#include "worker/source/step_channel.h"

namespace switchyard {

struct ClientOptions {
  std::string coordinator;  // "host:port"; may be empty with `gateway`
  std::string gateway;      // "host:port" of a worker that serves steps; empty: p2p from here
  TransportChoice transport = TransportChoice::kAuto;
  std::string net_devices = "all";              // of UCX's tcp lanes, e.g. "lo" or "eth0"
  Duration timeout = std::chrono::seconds(10);  // of opening, closing and reports
};

// What a Client is made of. The channels outlive nothing: they are owned.
struct ClientParts {
  std::unique_ptr<SessionChannel> sessions;
  std::unique_ptr<StepChannel> steps;    // gateway; else nullptr
  std::unique_ptr<Transport> transport;  // p2p; else nullptr
  std::unique_ptr<DeviceBackend> device;
  Incarnation incarnation;  // the transport's
};

class Client {
 public:
  // Errors: kInvalidArgument (BAD_REQUEST) unless exactly one of coordinator and gateway is usable;
  // kUnavailable (TRANSPORT) when UCX cannot start. Does not dial yet.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  static std::unique_ptr<Client> Over(const ClientOptions& options, ClientParts parts);
  // Sessions must be gone.
  ~Client();

  // Blocks until every worker is attached, at most the options' timeout. The session keeps a
  // pointer to this client. Errors as CoordinatorService.OpenSession and ExpertService.Attach.
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(const OpenSessionRequest& order);
  // As Open, and asks again while the deployment has no committed epoch (NOT_READY), at most
  // `ready_timeout`.
  absl::StatusOr<std::unique_ptr<MoeSession>> OpenWhenReady(const OpenSessionRequest& order,
                                                            Duration ready_timeout);
  [[nodiscard]] TransportStats transport_stats();
  // The gateway's worker id, once a session is open through it; empty in p2p.
  [[nodiscard]] std::string gateway_worker() const;

 private:
  Client(ClientOptions options, ClientParts parts);

  ClientOptions options_;
  SteadyClock clock_;
  SystemRng rng_;
  std::unique_ptr<SessionChannel> sessions_;
  std::unique_ptr<StepChannel> steps_;
  std::unique_ptr<DeviceBackend> device_;  // gateway: validation
  mutable std::mutex mutex_;
  std::condition_variable closing_;  // nobody notifies it: a bounded pause between two asks
  std::string gateway_worker_;       // guarded by mutex_
  std::unique_ptr<Source> source_;   // p2p; declared last: it uses the channel
};

}  // namespace switchyard
