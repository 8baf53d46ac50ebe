// One gRPC server on one port, with the settings that every server of the project shares.
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
#include "services/grpc/grpc_constants.h"

namespace switchyard {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";  // an address or name to listen on; "0.0.0.0" for all
  int port = 0;                    // 0: a free one
  // Largest message of any service on the port; what a method takes is its own affair.
  std::size_t message_bytes_max = kControlMessageBytesMax;
  KeepaliveOptions keepalive;
};

class GrpcServer {
 public:
  // Listens at once. `services` outlive the server. The standard health service answers beside
  // them. Errors: kUnavailable (ADDRESS_IN_USE) when another process has the port; kInvalidArgument
  // (BAD_CONFIG) when the address is none of this machine or may not be used; kInternal when gRPC
  // has another reason, such as no services.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);
  // As Shutdown(0).
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }  // "host:port"
  // What the health service says of `name` ("" is the server as a whole). Serving at start.
  void SetServing(const std::string& name, bool serving);
  // Refuses new calls, waits at most `deadline` for running ones, then cancels them; returns when
  // the last has ended. Idempotent.
  void Shutdown(Duration deadline);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, int port, std::string endpoint);

  std::unique_ptr<grpc::Server> server_;
  const int port_;
  const std::string endpoint_;
};

// The moment `from_now` from now, for ClientContext::set_deadline.
gpr_timespec GrpcDeadline(Duration from_now);

// A channel to `endpoint`, connecting when first used. Each has a connection of its own.
std::shared_ptr<grpc::Channel> MakeGrpcChannel(const std::string& endpoint,
                                               std::size_t message_bytes_max,
                                               const KeepaliveOptions& keepalive = {});

}  // namespace switchyard
