#include <utility>

#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "services/channels/worker_connections.h"
#include "services/convert/attach.h"
#include "services/convert/group.h"
#include "services/convert/session.h"
#include "services/grpc/client_streams.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {
namespace {

// One watch. gRPC may read `request_` after Start has returned, so it is a member.
class WatchCall final
    : public ClientStream<grpc::ClientReadReactor<v1::WatchPlanResponse>, v1::WatchPlanResponse> {
 public:
  WatchCall(CallsInFlight* calls, Peer coordinator, WatchSink* sink)
      : ClientStream(calls), coordinator_(std::move(coordinator)), sink_(sink) {}

  void Start(v1::CoordinatorService::Stub& stub, const WatchRequest& request,
             std::shared_ptr<WatchCall> self) {
    request_ = ToProto(request);
    stub.async()->WatchPlan(context(), &request_, this);
    Launch(std::move(self));
  }

 private:
  absl::Status OnResponse(v1::WatchPlanResponse& response) override {
    SY_ASSIGN_OR_RETURN(const PlanUpdate news, FromProto(response));
    sink_->OnPlan(news);
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& status) override {
    sink_->OnWatchEnded(AsPeerError(status, coordinator_));
  }

  const Peer coordinator_;
  WatchSink* const sink_;
  v1::WatchPlanRequest request_;
};

// One attachment stream to a worker.
class AttachCall final : public ClientBidiStream<v1::AttachRequest, v1::AttachResponse> {
 public:
  AttachCall(CallsInFlight* calls, Peer worker, AttachSink* sink)
      : ClientBidiStream(calls, kStreamQueueBytesMax), worker_(std::move(worker)), sink_(sink) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel, const AttachRequest& request,
             std::shared_ptr<AttachCall> self) {
    v1::ExpertService::NewStub(channel)->async()->Attach(context(), this);
    LaunchBidi(std::move(self));
    // The request is queued right away: gRPC sends it once the connection is up.
    Send(request);
  }
  void Send(const AttachMessage& message) {
    v1::AttachRequest proto = ToProto(message);
    const absl::Status size = CheckMessageSize(proto, kControlMessageBytesMax);
    if (!size.ok()) return Fail(size);
    Write(std::move(proto));
  }

 private:
  absl::Status OnResponse(v1::AttachResponse& response) override {
    SY_ASSIGN_OR_RETURN(const AttachAnswer answer, FromProto(response));
    if (const auto* grant = std::get_if<AttachGrant>(&answer)) {
      sink_->OnAttached(*grant);
    } else {
      const auto& bound = std::get<BindAnswer>(answer);
      sink_->OnBound(bound.epoch, bound.result);
    }
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& status) override {
    sink_->OnAttachEnded(AsPeerError(status, worker_));
  }

  const Peer worker_;
  AttachSink* const sink_;
};

// A source's stream to one worker of a group.
class GroupCall final : public ClientBidiStream<v1::JoinGroupRequest, v1::JoinGroupResponse> {
 public:
  GroupCall(CallsInFlight* calls, Peer worker, GroupStreamSink* sink)
      : ClientBidiStream(calls, kStreamQueueBytesMax), worker_(std::move(worker)), sink_(sink) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel, const JoinRequest& request,
             std::shared_ptr<GroupCall> self) {
    v1::ExpertService::NewStub(channel)->async()->JoinGroup(context(), this);
    LaunchBidi(std::move(self));
    Write(ToProto(GroupMessage(request)));
  }
  void Send(const GroupMessage& message) { Write(ToProto(message)); }

 private:
  absl::Status OnResponse(v1::JoinGroupResponse& response) override {
    SY_ASSIGN_OR_RETURN(const GroupAnswer answer, FromProto(response));
    if (const auto* joined = std::get_if<JoinAnswer>(&answer)) {
      sink_->OnJoined(*joined);
    } else if (const auto* keys = std::get_if<SourceKeys>(&answer)) {
      sink_->OnSourceKeys(*keys);
    } else if (const auto* bound = std::get_if<BindAnswer>(&answer)) {
      sink_->OnBound(bound->epoch, bound->result);
    } else {
      sink_->OnReady();
    }
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status& status) override {
    sink_->OnGroupEnded(AsPeerError(status, worker_));
  }

  const Peer worker_;
  GroupStreamSink* const sink_;
};

class GrpcGroupStream final : public GroupStream {
 public:
  explicit GrpcGroupStream(std::shared_ptr<GroupCall> call) : call_(std::move(call)) {}
  ~GrpcGroupStream() override { call_->Detach(); }
  void SendKeys(const GroupKeys& keys) override { call_->Send(keys); }
  void Bind(const BindRequest& request) override { call_->Send(request); }
  void Release(const ReleaseRequest& request) override { call_->Send(request); }

 private:
  const std::shared_ptr<GroupCall> call_;
};

class GrpcWatchStream final : public WatchStream {
 public:
  explicit GrpcWatchStream(std::shared_ptr<WatchCall> call) : call_(std::move(call)) {}
  ~GrpcWatchStream() override { call_->Detach(); }

 private:
  const std::shared_ptr<WatchCall> call_;
};

class GrpcAttachStream final : public AttachStream {
 public:
  explicit GrpcAttachStream(std::shared_ptr<AttachCall> call) : call_(std::move(call)) {}
  ~GrpcAttachStream() override { call_->Detach(); }
  void Bind(const BindRequest& request) override { call_->Send(request); }
  void Release(const ReleaseRequest& request) override { call_->Send(request); }

 private:
  const std::shared_ptr<AttachCall> call_;
};

// The error of coordinator calls on a channel that was created without a coordinator.
absl::Status NoCoordinator() {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   "no coordinator is configured; open sessions through a gateway");
}

Peer WorkerAt(const std::string& endpoint) { return {"worker", endpoint, Reason::kWorkerLost}; }

class GrpcSessionChannel final : public SessionChannel {
 public:
  GrpcSessionChannel(const std::string& coordinator,
                     const std::shared_ptr<const TransportSecurity>& security)
      : coordinator_{"coordinator", coordinator, Reason::kCoordinatorLost},
        workers_(kControlMessageBytesMax, security) {
    if (coordinator.empty()) return;
    stub_ = v1::CoordinatorService::NewStub(
        MakeGrpcChannel(coordinator, kControlMessageBytesMax, {}, {security, Role::kCoordinator}));
  }

  // The session is not retried here: opening is not idempotent, and only the caller knows whether
  // it still wants one.
  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                           Duration timeout) override {
    if (stub_ == nullptr) return NoCoordinator();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    v1::OpenSessionResponse response;
    SY_RETURN_IF_ERROR(Result(stub_->OpenSession(&context, ToProto(request), &response)));
    return FromProto(response);
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    if (stub_ == nullptr) return NoCoordinator();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    v1::CloseSessionResponse response;
    const absl::Status closed = Result(stub_->CloseSession(&context, ToProto(session), &response));
    // It has ended before: with TLS the coordinator says so.
    return ReasonOf(closed) == Reason::kUnknownSession ? absl::OkStatus() : closed;
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& request, WatchSink* sink) override {
    if (stub_ == nullptr) {
      // The caller expects a stream in any case; this one has already ended.
      sink->OnWatchEnded(NoCoordinator());
      return std::make_unique<WatchStream>();
    }
    auto call = std::make_shared<WatchCall>(&calls_, coordinator_, sink);
    call->Start(*stub_, request, call);
    return std::make_unique<GrpcWatchStream>(std::move(call));
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& request,
                                       AttachSink* sink) override {
    auto call = std::make_shared<AttachCall>(&calls_, WorkerAt(endpoint), sink);
    call->Start(workers_.To(endpoint), request, call);
    return std::make_unique<GrpcAttachStream>(std::move(call));
  }
  std::unique_ptr<GroupStream> JoinGroup(const std::string& endpoint, const JoinRequest& request,
                                         GroupStreamSink* sink) override {
    auto call = std::make_shared<GroupCall>(&calls_, WorkerAt(endpoint), sink);
    call->Start(workers_.To(endpoint), request, call);
    return std::make_unique<GrpcGroupStream>(std::move(call));
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override;

 private:
  // Errors without a reason come from gRPC itself; they are attributed to the coordinator.
  absl::Status Result(const grpc::Status& status) {
    return AsPeerError(StatusFromGrpc(status), coordinator_);
  }

  const Peer coordinator_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;  // nullptr: no coordinator is configured
  WorkerConnections workers_;
  CallsInFlight calls_;  // last, so that the channels are destroyed after their calls
};

// Counters are read with a new stub on the attachment's connection, so they need no connection of
// their own.
absl::StatusOr<SessionCounters> GrpcSessionChannel::GetCounters(const std::string& endpoint,
                                                                SessionId session,
                                                                Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout));
  v1::GetStatusRequest request;
  request.set_session_id(ToHex(session));
  v1::GetStatusResponse response;
  const auto stub = v1::ExpertService::NewStub(workers_.To(endpoint));
  SY_RETURN_IF_ERROR(AsPeerError(StatusFromGrpc(stub->GetStatus(&context, request, &response)),
                                 WorkerAt(endpoint)));
  Decoder at("GetStatusResponse");
  SessionCounters counters;
  counters.worker_id = response.worker_id();
  at.Each("attachments", response.attachments(), &counters.attachments,
          [&](const v1::AttachmentCounters& item, AttachmentCounters* attachment) {
            Decode(at, item, attachment);
            attachment->worker_id = response.worker_id();
          });
  return at.Finish(std::move(counters));
}

}  // namespace

std::unique_ptr<SessionChannel> MakeGrpcSessionChannel(
    const std::string& coordinator, const std::shared_ptr<const TransportSecurity>& security) {
  return std::make_unique<GrpcSessionChannel>(coordinator, security);
}

}  // namespace switchyard
