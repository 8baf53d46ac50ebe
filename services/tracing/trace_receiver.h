// The other end of a TraceExporter: takes spans over OTLP/gRPC. For people who have no collector at
// hand (syctl traces). It keeps nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "services/grpc/grpc_server.h"
#include "switchyard/otlp/v1/trace.pb.h"

namespace switchyard {

class TraceReceiver {
 public:
  // Called from threads of gRPC, several at a time.
  using OnSpans = std::function<void(const otlp::v1::ExportTraceServiceRequest& request)>;

  // Listens on `host` and `port`; 0: any free one. Errors: those of GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<TraceReceiver>> Start(const std::string& host, int port,
                                                              OnSpans on_spans);
  // `on_spans` is not called any more once this returns.
  ~TraceReceiver();
  TraceReceiver(const TraceReceiver&) = delete;
  TraceReceiver& operator=(const TraceReceiver&) = delete;

  [[nodiscard]] const std::string& endpoint() const { return server_->endpoint(); }

 private:
  class Service;
  TraceReceiver();

  std::unique_ptr<Service> service_;
  std::unique_ptr<GrpcServer> server_;  // ends before its service
};

}  // namespace switchyard
