// Where an engine begins: one Client for a deployment's coordinator (or a gateway worker), and
// sessions from it.
//
// Connect wires gRPC channels and a UCX transport; Over takes parts from elsewhere (a loopback
// deployment, tests). Nothing is read from the environment. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "client/moe_session.h"
#include "core/base/clock.h"
#include "core/rng.h"
#include "core/tracing/trace_sink.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"
#include "worker/source/source.h"
#include "worker/source/source_pool.h"
#include "worker/source/step_channel.h"

namespace switchyard {

struct ClientOptions {
  std::string coordinator;  // "host:port"; may be empty with `gateway`
  // "host:port" of a worker that serves steps, or several with commas between; empty: p2p from
  // here. When one is lost or leaves, its sessions go on through the next, and after these through
  // any worker of their plan.
  std::string gateway;
  TransportChoice transport = TransportChoice::kAuto;
  std::string net_devices = "all";  // for UCX's tcp lanes, e.g. "lo" or "eth0"
  // "FIRST-LAST": the TCP ports at which workers reach this process, four for each network device
  // and source (worker/source/source_pool.h); empty: any. p2p only.
  std::string data_ports;
  // Directory for the sockets over which this process and workers on its host share memory. It has
  // to be the workers' --ring-dir, shared with them; empty: both are in one network namespace. p2p
  // only.
  std::string ring_dir;
  Duration timeout = std::chrono::seconds(10);  // bounds opening, closing and reports
  // The device on which the tensors of steps lie, as the registry of devices names it ("cuda:0";
  // one of the kind cpu computes in memory of the host). Empty: memory of the host.
  std::string device;
  // How long a caller that waits for a step looks for answers, instead of sleeping, after each
  // frame that came or went; p2p only. Saves wake-ups and takes a CPU meanwhile; 0: sleeps.
  Duration busy_poll{};
  // A worker of this process: sources of collective sessions whose group names it as their host
  // (core/group_messages.h) share its ranks. Null: there is none.
  std::shared_ptr<RankHost> worker;
  // Folder with ca.crt, tls.crt, tls.key and identities.yaml (services/config/security_files.h):
  // mutual TLS with coordinator and workers. Empty: nothing is encrypted. Rows that do not go over
  // gRPC are not encrypted either way.
  std::string tls_dir;
};

// The parts of a Client, which owns them.
struct ClientParts {
  std::unique_ptr<SessionChannel> sessions;
  std::unique_ptr<StepChannel> steps;    // gateway; else nullptr
  std::unique_ptr<Transport> transport;  // p2p; else nullptr
  // For further sources (worker/source/source_pool.h). Null: all sessions share one transport, in
  // p2p.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(Incarnation incarnation)> make_transport;
  std::unique_ptr<DeviceBackend> device;  // p2p: encodes rows and adds them, in memory of the host
  // On which the tensors of steps lie; nullptr: memory of the host.
  std::unique_ptr<DeviceBackend> tensors;
  std::unique_ptr<TraceSink> traces;  // nullptr: no step is traced
  Incarnation incarnation;            // the transport's
};

// Owns the sources that drive its sessions.
class Client {
 public:
  // Does not connect yet. Errors: kInvalidArgument (BAD_REQUEST) unless exactly one of coordinator
  // and gateway is given, for a gateway that is no "host:port" and for data_ports that are no
  // range; kInvalidArgument (BAD_CONFIG) for a ring_dir that cannot be used; kUnavailable
  // (TRANSPORT) when UCX cannot start, (ADDRESS_IN_USE) when all data_ports are taken; those of
  // MakeDevice for `device`, whose self-test takes about a second.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  // `parts` has sessions and a transport with its device, or steps. Never fails: nothing is dialed.
  static std::unique_ptr<Client> Over(const ClientOptions& options, ClientParts parts);
  // REQUIRES: its sessions have been destroyed.
  ~Client();

  // Blocks until steps can be submitted, at most the options' timeout. The session keeps a pointer
  // to this client. Errors as Source::Open.
  absl::StatusOr<std::unique_ptr<MoeSession>> Open(const OpenSessionRequest& request);
  // As Open, and tries again while the deployment has no committed epoch (NOT_READY), at most
  // `ready_timeout`.
  absl::StatusOr<std::unique_ptr<MoeSession>> OpenWhenReady(const OpenSessionRequest& request,
                                                            Duration ready_timeout);
  // Totals since Connect; zeros through a gateway.
  [[nodiscard]] TransportStats transport_stats();

 private:
  // It holds what the sources share.
  struct Shared;
  Client(ClientOptions options, ClientParts parts);

  ClientOptions options_;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<SourcePool> sources_;  // last: their runners use what is shared
};

}  // namespace switchyard
