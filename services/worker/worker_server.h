// A worker's gRPC service over its expert side and, on a gateway, over its source.
//
// Blocking calls run on threads of the server's own, never on gRPC's. The end of an Attach stream,
// from either side, closes the attachment.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "services/grpc/grpc_server.h"
#include "services/worker/forward_stream.h"
#include "services/worker/gateway.h"

namespace switchyard {

class ExpertService;

struct WorkerServerOptions {
  GrpcServerOptions grpc;  // message_bytes_max is set by the server
  std::string worker_id;
  Incarnation incarnation;
  std::size_t attach_threads = 4;
  // Sessions that callers may have through this worker at once; each takes a thread.
  std::size_t gateway_sessions_max = 16;
  std::uint32_t gateway_credits = 8;
};

class WorkerServer {
 public:
  // `experts` and `gateway` outlive the server; without a gateway Forward is kUnimplemented
  // (UNSUPPORTED). Errors: as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerServerOptions& options,
                                                             ExpertService* experts,
                                                             GatewaySource* gateway);
  // Cancels what is open.
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  [[nodiscard]] GrpcServer& grpc() { return *grpc_; }
  // From now on callers are served: the endpoint of a server without a gateway is known before the
  // source behind one can be made.
  void SetGateway(GatewaySource* gateway);

 private:
  class Skin;
  explicit WorkerServer(std::unique_ptr<Skin> skin);

  std::unique_ptr<Skin> skin_;
  std::unique_ptr<GrpcServer> grpc_;  // ends before what it serves
};

}  // namespace switchyard
