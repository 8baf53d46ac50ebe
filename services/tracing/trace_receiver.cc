#include "services/tracing/trace_receiver.h"

#include <utility>

#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/server_callback.h"

#include "core/base/status_macros.h"
#include "services/tracing/export_method.h"

namespace switchyard {

// Stands for what protoc would write: the package of the service is not ours.
class TraceReceiver::Service final : public grpc::Service {
 public:
  explicit Service(OnSpans on_spans) : on_spans_(std::move(on_spans)) {
    AddMethod(new grpc::internal::RpcServiceMethod(kExportMethod,
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodCallback(
        0, new grpc::internal::CallbackUnaryHandler<otlp::v1::ExportTraceServiceRequest,
                                                    otlp::v1::ExportTraceServiceResponse>(
               [this](grpc::CallbackServerContext* context,
                      const otlp::v1::ExportTraceServiceRequest* request,
                      otlp::v1::ExportTraceServiceResponse*) {
                 on_spans_(*request);
                 grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
                 reactor->Finish(grpc::Status::OK);
                 return reactor;
               }));
  }

 private:
  const OnSpans on_spans_;
};

TraceReceiver::TraceReceiver() = default;
TraceReceiver::~TraceReceiver() = default;

absl::StatusOr<std::unique_ptr<TraceReceiver>> TraceReceiver::Start(const std::string& host,
                                                                    int port, OnSpans on_spans) {
  std::unique_ptr<TraceReceiver> receiver(new TraceReceiver());
  receiver->service_ = std::make_unique<Service>(std::move(on_spans));
  GrpcServerOptions options;
  options.host = host;
  options.port = port;
  SY_ASSIGN_OR_RETURN(receiver->server_, GrpcServer::Start(options, {receiver->service_.get()}));
  return receiver;
}

}  // namespace switchyard
