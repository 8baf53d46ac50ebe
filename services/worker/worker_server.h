// A worker's gRPC service over its expert side and, on a gateway, over its source.
//
// Blocking calls run on the server's own threads, never on gRPC's. The end of an Attach stream,
// from either side, closes the attachment.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/port_range.h"
#include "core/ids.h"
#include "services/grpc/grpc_server.h"
#include "services/system/metrics_text.h"
#include "services/worker/forward_stream.h"

namespace switchyard {

class ExpertService;
class GroupService;

// Fixed for the life of the server.
struct WorkerServerOptions {
  GrpcServerOptions grpc;  // message_bytes_max is set by the server
  std::string worker_id;
  Incarnation incarnation;
  // Attach waits for the data thread and for the memory of rings, Bind, Release and GetStatus for
  // the data thread, and each blocks one of these threads meanwhile.
  std::size_t attach_threads = 4;
  std::size_t bind_threads = 2;
  // Forming a group takes memory of the device, some milliseconds.
  std::size_t group_threads = 2;
  std::size_t status_threads = 2;
  // Sessions that callers may have through this worker at once; each takes a thread. One tenant may
  // have half of them (TenantSessions).
  std::size_t gateway_sessions_max = 16;
  std::uint32_t gateway_credits = 8;
  // For the steps of all of these sessions together (StepMemory), beside grpc.memory_bytes_max.
  std::size_t gateway_memory_bytes_max = std::size_t{1} << 30;
  // Where rows arrive: what a peer that dials tries to connect to. No host: rows need no port.
  std::vector<std::string> data_hosts = {};
  PortRange data_ports{};
  Logger* logger = nullptr;  // outlives the server; null: nothing is logged
};

// The share of a gateway that its callers take now.
struct GatewayUse {
  std::size_t sessions = 0;
  std::size_t memory_bytes = 0;  // of gateway_memory_bytes_max
  std::size_t memory_bytes_max = 0;
};

// Owns the service, its threads and the port. Thread-safe.
class WorkerServer {
 public:
  // `experts`, `groups` and `gateway` outlive the server; without a gateway Forward is
  // kUnimplemented (UNSUPPORTED), and without groups JoinGroup. Errors: as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerServerOptions& options,
                                                             ExpertService* experts,
                                                             GroupService* groups,
                                                             SourcePool* gateway);
  // Cancels the open calls and waits for their ends.
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  [[nodiscard]] GrpcServer& grpc() { return *grpc_; }
  [[nodiscard]] GatewayUse gateway_use() const;
  [[nodiscard]] const GatewayCounts& gateway_counts() const;
  // Calls `collect`, from one thread at a time, for whoever asks for this worker's metrics over
  // gRPC from now on. Null: nobody gets any. The former one is not called after this has returned.
  void ServeMetrics(std::function<std::vector<MetricFamily>()> collect);
  // Closes the ports that peers have tried, once their time is over at `now`. Cheap; call it often.
  void CloseTestPorts(TimePoint now);
  // The gateway takes no more sessions, and tells the callers of those that are open to go on
  // through another one.
  void LeaveGateway();
  // Afterwards: waits until they have, at most until `until` of the steady clock.
  void WaitForGateway(TimePoint until);

 private:
  // The generated service's implementation.
  class ServiceImpl;
  explicit WorkerServer(std::unique_ptr<ServiceImpl> service);

  std::unique_ptr<ServiceImpl> service_;
  std::unique_ptr<GrpcServer> grpc_;  // ends before what it serves
};

}  // namespace switchyard
