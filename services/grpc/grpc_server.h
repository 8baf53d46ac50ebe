// A gRPC server on one port and a channel to it, with the settings that all programs share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "grpcpp/support/channel_arguments.h"

#include "core/base/clock.h"
#include "grpc/support/time.h"
#include "services/grpc/call_counter.h"
#include "services/grpc/grpc_constants.h"
#include "services/grpc/listener.h"
#include "services/security/transport_security.h"

namespace switchyard {

// Options of one server.
struct GrpcServerOptions {
  std::string host = "127.0.0.1";  // address or name to listen on; "0.0.0.0" for all
  int port = 0;                    // 0: any free port
  // Listens already, so that clients that connect before Start wait a moment. Null: Start binds
  // `host` and `port`.
  std::shared_ptr<Listener> listener = nullptr;
  // Largest message of any service on the port. A method may have a lower limit of its own.
  std::size_t message_bytes_max = kControlMessageBytesMax;
  // For what gRPC itself holds of all connections, above all messages of which a part has arrived.
  // Beyond it gRPC reads less, and ends streams with kResourceExhausted.
  std::size_t memory_bytes_max = kServerMemoryBytesMax;
  KeepaliveOptions keepalive;
  // Tells clients which services there are, and their messages. Only in programs that link gRPC's
  // library for it.
  bool reflection = false;
  // Mutual TLS and who may call what. Null: neither.
  std::shared_ptr<const TransportSecurity> security = nullptr;
  // Counts the calls of the server. Null: nobody does.
  std::shared_ptr<CallCounter> calls = nullptr;
};

// How a channel finds out who is at its other end. Null: it does not, and nothing is encrypted.
struct PeerSecurity {
  std::shared_ptr<const TransportSecurity> transport = nullptr;
  Role role = Role::kCoordinator;  // that the server must have
};

// One listening server. Thread-safe.
class GrpcServer {
 public:
  // Starts to listen. `services` must outlive the server; the standard health service is added to
  // them. Errors: kUnavailable (ADDRESS_IN_USE) if another process uses the port; kInvalidArgument
  // (BAD_CONFIG) if the address does not belong to this machine or is not permitted; kInternal if
  // gRPC fails for another reason, for example without services.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);
  // Calls Shutdown(0).
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // The port that the kernel chose if the options have 0.
  [[nodiscard]] int port() const { return listener_->port(); }
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }  // "host:port"
  // Sets the health service's answer for `name` ("" is the whole server). Initially serving.
  void SetServing(const std::string& name, bool serving);
  // Refuses new calls, waits up to `deadline` for running ones, cancels the rest and returns when
  // the last one has ended. Idempotent.
  void Shutdown(Duration deadline);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::shared_ptr<Listener> listener,
             std::string endpoint, std::shared_ptr<CallCounter> calls);

  const std::shared_ptr<CallCounter> calls_;
  // Ends before the services, which the owner destroys after this object.
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<Listener> listener_;
  const std::string endpoint_;
};

// "host:port", with brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, int port);

// Converts a duration from now to a time point for ClientContext::set_deadline.
gpr_timespec GrpcDeadline(Duration from_now);

// A channel to `endpoint` that connects on first use. Each channel has its own connection, so that
// a large message on one does not delay another.
std::shared_ptr<grpc::Channel> MakeGrpcChannel(const std::string& endpoint,
                                               std::size_t message_bytes_max,
                                               const KeepaliveOptions& keepalive = {},
                                               const PeerSecurity& security = {});

}  // namespace switchyard
