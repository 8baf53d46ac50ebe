// The coordinator's gRPC services: a thin layer over its driver and its view.
//
//   driver->Shutdown(...);  // ends every stream
//   server->Shutdown(...);  // then ends the calls
//   delete server, then driver
//
// In this order, because gRPC waits for open streams and only the driver can end them. Every call
// is converted, passed to the driver, and answered on the driver's thread. A stream whose peer does
// not read, and a message above kControlMessageBytesMax, end with kResourceExhausted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "services/grpc/grpc_server.h"
#include "services/system/metrics_text.h"

namespace switchyard {

class Driver;

struct CoordinatorServerOptions {
  GrpcServerOptions grpc;
  Incarnation incarnation;  // of this process; GetVersion returns it
  // GetMetrics returns them; empty: none. Not called after GrpcServer::Shutdown.
  std::function<std::vector<MetricFamily>()> metrics = {};
};

// Owns the services and the port. Thread-safe; destroy it after the driver's Shutdown.
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
  // Hides the generated service classes from the program.
  struct Services;
  explicit CoordinatorServer(std::unique_ptr<Services> services);

  std::unique_ptr<Services> services_;
  std::unique_ptr<GrpcServer> grpc_;  // last, so that it ends before the services
};

}  // namespace switchyard
