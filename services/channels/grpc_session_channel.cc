#include <map>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "services/convert/attach.h"
#include "services/convert/session.h"
#include "services/grpc/client_streams.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard {
namespace {

class WatchCall final
    : public ClientStream<grpc::ClientReadReactor<v1::WatchPlanResponse>, v1::WatchPlanResponse> {
 public:
  WatchCall(CallsInFlight* calls, Peer coordinator, WatchSink* sink)
      : ClientStream(calls), coordinator_(std::move(coordinator)), sink_(sink) {}

  void Start(v1::CoordinatorService::Stub& stub, const WatchRequest& order,
             std::shared_ptr<WatchCall> self) {
    request_ = ToProto(order);
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

class AttachCall final : public ClientBidiStream<v1::AttachRequest, v1::AttachResponse> {
 public:
  AttachCall(CallsInFlight* calls, Peer worker, AttachSink* sink)
      : ClientBidiStream(calls, kStreamQueueBytesMax), worker_(std::move(worker)), sink_(sink) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel, const AttachRequest& order,
             std::shared_ptr<AttachCall> self) {
    v1::ExpertService::NewStub(channel)->async()->Attach(context(), this);
    LaunchBidi(std::move(self));
    Send(order);
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
  void Bind(const BindRequest& order) override { call_->Send(order); }
  void Release(const ReleaseRequest& order) override { call_->Send(order); }

 private:
  const std::shared_ptr<AttachCall> call_;
};

// Connections to workers, one each. Those that nothing uses any more go when one is asked for.
class WorkerConnections {
 public:
  std::shared_ptr<grpc::Channel> To(const std::string& endpoint) {
    const MutexLock lock(mutex_);
    for (auto it = channels_.begin(); it != channels_.end();) {
      const bool unused = it->first != endpoint && it->second.use_count() == 1;
      it = unused ? channels_.erase(it) : std::next(it);
    }
    std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
    if (channel == nullptr) channel = MakeGrpcChannel(endpoint, kControlMessageBytesMax);
    return channel;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ SY_GUARDED_BY(mutex_);
};

absl::Status NoCoordinator() {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   "no coordinator was named; sessions of this channel come from a gateway");
}

Peer WorkerAt(const std::string& endpoint) { return {"worker", endpoint, Reason::kWorkerLost}; }

class GrpcSessionChannel final : public SessionChannel {
 public:
  explicit GrpcSessionChannel(const std::string& coordinator)
      : coordinator_{"coordinator", coordinator, Reason::kCoordinatorLost} {
    if (coordinator.empty()) return;
    stub_ = v1::CoordinatorService::NewStub(MakeGrpcChannel(coordinator, kControlMessageBytesMax));
  }

  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& order,
                                           Duration timeout) override {
    if (stub_ == nullptr) return NoCoordinator();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    v1::OpenSessionResponse response;
    SY_RETURN_IF_ERROR(Result(stub_->OpenSession(&context, ToProto(order), &response)));
    return FromProto(response);
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    if (stub_ == nullptr) return NoCoordinator();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    v1::CloseSessionResponse response;
    return Result(stub_->CloseSession(&context, ToProto(session), &response));
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& order, WatchSink* sink) override {
    if (stub_ == nullptr) {
      sink->OnWatchEnded(NoCoordinator());
      return std::make_unique<WatchStream>();
    }
    auto call = std::make_shared<WatchCall>(&calls_, coordinator_, sink);
    call->Start(*stub_, order, call);
    return std::make_unique<GrpcWatchStream>(std::move(call));
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& order,
                                       AttachSink* sink) override {
    auto call = std::make_shared<AttachCall>(&calls_, WorkerAt(endpoint), sink);
    call->Start(workers_.To(endpoint), order, call);
    return std::make_unique<GrpcAttachStream>(std::move(call));
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override;

 private:
  absl::Status Result(const grpc::Status& status) {
    return AsPeerError(StatusFromGrpc(status), coordinator_);
  }

  const Peer coordinator_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;  // nullptr: no coordinator was named
  WorkerConnections workers_;
  CallsInFlight calls_;  // last: the channels go after their calls
};

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

std::unique_ptr<SessionChannel> MakeGrpcSessionChannel(const std::string& coordinator) {
  return std::make_unique<GrpcSessionChannel>(coordinator);
}

}  // namespace switchyard
