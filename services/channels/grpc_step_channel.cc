#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "services/channels/worker_connections.h"
#include "services/convert/step.h"
#include "services/grpc/client_streams.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {
namespace {

// One session through a gateway.
class ForwardCall final : public ClientBidiStream<v1::ForwardRequest, v1::ForwardResponse> {
 public:
  ForwardCall(CallsInFlight* calls, Peer gateway, StepSink* sink)
      : ClientBidiStream(calls, kStepQueueBytesMax), gateway_(std::move(gateway)), sink_(sink) {}

  void Start(v1::ExpertService::Stub& stub, const OpenSessionRequest& request,
             std::shared_ptr<ForwardCall> self) {
    stub.async()->Forward(context(), this);
    LaunchBidi(std::move(self));
    // Queued at once; gRPC sends it when the connection is up.
    Write(ForwardOpen(request));
  }
  absl::Status Submit(const GatewayStep& step) {
    // Estimated before the message is built, because building it copies every row.
    const std::size_t bytes =
        step.x.size() + step.ids.size_bytes() + step.weights.size_bytes() + kStepHeaderBytesMax;
    if (bytes > kStepMessageBytesMax) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
          absl::StrCat("the step has ", bytes, " bytes; the limit is ", kStepMessageBytesMax,
                       "; send fewer tokens in a step"),
          {{"bytes", absl::StrCat(bytes)}, {"bytes_max", absl::StrCat(kStepMessageBytesMax)}});
    }
    // The stream may end at any moment, so a refused write is an expected error.
    if (Write(ForwardStep(step))) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnavailable, gateway_.lost,
                     absl::StrCat("the session through worker ", gateway_.endpoint,
                                  " has ended; open a new one"),
                     {{"endpoint", gateway_.endpoint}});
  }

 private:
  absl::Status OnResponse(v1::ForwardResponse& response) override {
    SY_ASSIGN_OR_RETURN(const ForwardAnswer answer, FromProto(response));
    if (const auto* grant = std::get_if<GatewayGrant>(&answer)) {
      sink_->OnOpened(*grant);
    } else if (const auto* news = std::get_if<GatewayNews>(&answer)) {
      sink_->OnNews(*news);
    } else {
      const auto& result = std::get<StepAnswer>(answer);
      sink_->OnStep(result.step, result.status, result.y);
    }
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& status) override {
    sink_->OnEnded(AsPeerError(status, gateway_));
  }

  const Peer gateway_;
  StepSink* const sink_;
};

class GrpcStepStream final : public StepStream {
 public:
  explicit GrpcStepStream(std::shared_ptr<ForwardCall> call) : call_(std::move(call)) {}
  ~GrpcStepStream() override { call_->Detach(); }
  absl::Status Submit(const GatewayStep& step) override { return call_->Submit(step); }

 private:
  const std::shared_ptr<ForwardCall> call_;
};

class GrpcStepChannel final : public StepChannel {
 public:
  explicit GrpcStepChannel(const std::shared_ptr<const TransportSecurity>& security)
      // Steps are larger than control messages.
      : workers_(kStepMessageBytesMax, security) {}

  std::unique_ptr<StepStream> Open(const std::string& gateway, const OpenSessionRequest& request,
                                   StepSink* sink) override {
    // The call also owns itself until gRPC is done with it, so the handle may be destroyed at any
    // time: that only detaches the call.
    auto call =
        std::make_shared<ForwardCall>(&calls_, Peer{"worker", gateway, Reason::kWorkerLost}, sink);
    call->Start(*v1::ExpertService::NewStub(workers_.NewTo(gateway)), request, call);
    return std::make_unique<GrpcStepStream>(std::move(call));
  }

 private:
  WorkerConnections workers_;
  CallsInFlight calls_;  // last, so that the channels are destroyed after their calls
};

}  // namespace

std::unique_ptr<StepChannel> MakeGrpcStepChannel(
    const std::shared_ptr<const TransportSecurity>& security) {
  return std::make_unique<GrpcStepChannel>(security);
}

}  // namespace switchyard
