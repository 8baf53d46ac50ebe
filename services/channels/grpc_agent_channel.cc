#include <utility>

#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/control.h"
#include "services/grpc/client_streams.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/worker_control.grpc.pb.h"

namespace switchyard {
namespace {

// One control stream. It converts in both directions and leaves all decisions to the agent.
class ControlCall final : public ClientBidiStream<v1::SessionRequest, v1::SessionResponse> {
 public:
  ControlCall(CallsInFlight* calls, Peer coordinator, AgentStreamSink* sink)
      : ClientBidiStream(calls, kStreamQueueBytesMax),
        coordinator_(std::move(coordinator)),
        sink_(sink) {}

  void Start(v1::WorkerControlService::Stub& stub, std::shared_ptr<ControlCall> self) {
    stub.async()->Session(context(), this);
    LaunchBidi(std::move(self));
  }
  void Send(const WorkerMessage& message) {
    v1::SessionRequest proto = ToProto(message);
    // Checked here as well as by the receiver: gRPC's error for an oversized message does not name
    // its size.
    const absl::Status size = CheckMessageSize(proto, kSmallMessageBytesMax);
    if (!size.ok()) return Fail(size);
    Write(std::move(proto));
  }

 private:
  void OnUp() override { sink_->OnUp(); }
  // An invalid message ends the stream: skipping it could lose a PREPARE or COMMIT.
  absl::Status OnResponse(v1::SessionResponse& response) override {
    SY_ASSIGN_OR_RETURN(CoordinatorMessage message, FromProto(response));
    sink_->OnMessage(std::move(message));
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& status) override {
    sink_->OnDown(AsPeerError(status, coordinator_));
  }

  const Peer coordinator_;
  AgentStreamSink* const sink_;
};

// The agent's handle. The call outlives it until gRPC is done, but no hook runs after Detach.
class GrpcAgentStream final : public AgentStream {
 public:
  explicit GrpcAgentStream(std::shared_ptr<ControlCall> call) : call_(std::move(call)) {}
  ~GrpcAgentStream() override { call_->Detach(); }
  void Send(const WorkerMessage& message) override { call_->Send(message); }

 private:
  const std::shared_ptr<ControlCall> call_;
};

class GrpcAgentChannel final : public AgentChannel {
 public:
  GrpcAgentChannel(const std::string& coordinator,
                   const std::shared_ptr<const TransportSecurity>& security)
      : coordinator_{"coordinator", coordinator, Reason::kCoordinatorLost},
        stub_(v1::WorkerControlService::NewStub(MakeGrpcChannel(
            coordinator, kControlMessageBytesMax, {}, {security, Role::kCoordinator}))) {}

  std::unique_ptr<AgentStream> Open(AgentStreamSink* sink) override {
    auto call = std::make_shared<ControlCall>(&calls_, coordinator_, sink);
    call->Start(*stub_, call);
    return std::make_unique<GrpcAgentStream>(std::move(call));
  }

 private:
  const Peer coordinator_;
  const std::unique_ptr<v1::WorkerControlService::Stub> stub_;
  CallsInFlight calls_;  // last, so that the channel is destroyed after its calls
};

}  // namespace

std::unique_ptr<AgentChannel> MakeGrpcAgentChannel(
    const std::string& coordinator, const std::shared_ptr<const TransportSecurity>& security) {
  return std::make_unique<GrpcAgentChannel>(coordinator, security);
}

}  // namespace switchyard
