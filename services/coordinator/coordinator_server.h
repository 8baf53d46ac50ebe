// The coordinator's gRPC services: a thin skin over its driver and its view.
//
//   driver->Shutdown(...);  // ends every stream
//   server->Shutdown(...);  // then the calls
//   delete server, then driver
//
// Every call is translated, handed to the driver, and answered from the driver's thread. A stream
// whose peer does not read, or a message over kControlMessageBytesMax, is kResourceExhausted.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "services/grpc/grpc_server.h"

namespace switchyard {

class Driver;

struct CoordinatorServerOptions {
  GrpcServerOptions grpc;
  Incarnation incarnation;  // of this process; GetVersion tells
};

class CoordinatorServer {
 public:
  // `driver` outlives the server. Errors: as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const CoordinatorServerOptions& options, Driver* driver);
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  [[nodiscard]] GrpcServer& grpc() { return *grpc_; }

 private:
  struct Services;
  explicit CoordinatorServer(std::unique_ptr<Services> services);

  std::unique_ptr<Services> services_;
  std::unique_ptr<GrpcServer> grpc_;  // ends before what it serves
};

}  // namespace switchyard
