#include "services/worker/worker_server.h"

#include <optional>
#include <string>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "services/convert/attach.h"
#include "services/convert/decoder.h"
#include "services/convert/work_times.h"
#include "services/convert/worker_status.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/server_streams.h"
#include "services/grpc/thread_pool.h"
#include "services/system/metrics_message.h"
#include "services/worker/attach_stream.h"
#include "services/worker/group_stream.h"
#include "services/worker/peer_dial.h"
#include "services/worker/tenant_memory.h"
#include "services/worker/tenant_sessions.h"
#include "services/worker/test_ports.h"
#include "switchyard/v1/expert.grpc.pb.h"
#include "worker/collective/expert/group_service.h"
#include "worker/collective/expert/work_meter.h"
#include "worker/expert/expert_service.h"

namespace switchyard {
namespace {

// How long the data thread may take to answer a request for counters.
constexpr Duration kStatusTimeout = std::chrono::seconds(5);

constexpr char kForward[] = "/switchyard.v1.ExpertService/Forward";

// A caller without a step for so long after it was told has no other gateway, or no steps.
constexpr Duration kGatewayIdle = std::chrono::seconds(2);

// Ends a stream before it reads anything.
template <typename Request, typename Response>
class RefusedStream final : public ServerBidiStream<Request, Response> {
 public:
  RefusedStream(grpc::CallbackServerContext* context, const absl::Status& why)
      : ServerBidiStream<Request, Response>({context}, {}) {
    this->End(why);
  }

 private:
  void OnRequest(Request& /*request*/) override { this->ReadNext(); }
  void OnStreamDone() override {}
};

}  // namespace

class WorkerServer::ServiceImpl final : public v1::ExpertService::CallbackService {
 public:
  ServiceImpl(const WorkerServerOptions& options, ExpertService* experts, GroupService* groups,
              SourcePool* gateway)
      : worker_id_(options.worker_id),
        incarnation_(options.incarnation),
        gateway_memory_(std::make_shared<StepMemory>(options.gateway_memory_bytes_max)),
        tenant_memory_(gateway_memory_),
        tenant_sessions_(options.gateway_sessions_max),
        gateway_options_{.worker_id = options.worker_id,
                         .credits = options.gateway_credits,
                         .memory = gateway_memory_,
                         .part_of = [this](const std::string& id) { return PartOf(id); }},
        experts_(experts),
        groups_(groups),
        gateway_(gateway),
        test_ports_(options.data_hosts, options.data_ports),
        security_(options.grpc.security),
        dial_threads_(kPeerDialsMax),
        attach_threads_{ThreadPool(options.attach_threads), ThreadPool(options.bind_threads)},
        group_threads_(options.group_threads),
        logger_(options.logger),
        status_threads_(options.status_threads),
        gateway_threads_(options.gateway_sessions_max) {}

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override {
    return ServeAttach(CallOf(context, "/switchyard.v1.ExpertService/Attach"), experts_,
                       &attach_threads_, logger_);
  }

  grpc::ServerBidiReactor<v1::JoinGroupRequest, v1::JoinGroupResponse>* JoinGroup(
      grpc::CallbackServerContext* context) override {
    if (groups_ != nullptr)
      return ServeGroup(CallOf(context, "/switchyard.v1.ExpertService/JoinGroup"), groups_,
                        &experts_->direct(), &group_threads_);
    return new RefusedStream<v1::JoinGroupRequest, v1::JoinGroupResponse>(
        context, MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                           "worker " + worker_id_ +
                               " takes part in no groups; use binding p2p (--transport auto)",
                           {{"worker", worker_id_}}));
  }

  grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context) override {
    if (gateway_ != nullptr) {
      return ServeForward(CallOf(context, kForward), gateway_, &gateway_threads_,
                          &gateway_options_);
    }
    return new RefusedStream<v1::ForwardRequest, v1::ForwardResponse>(
        context, MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                           "worker " + worker_id_ + " is not a gateway; use a worker that is one",
                           {{"worker", worker_id_}}));
  }

  [[nodiscard]] GatewayUse gateway_use() const {
    return {.sessions = gateway_options_.sessions->open(),
            .memory_bytes = gateway_options_.memory->used(),
            .memory_bytes_max = gateway_options_.memory->bytes_max()};
  }
  [[nodiscard]] const GatewayCounts& gateway_counts() const { return *gateway_options_.counts; }
  void ServeMetrics(std::function<std::vector<MetricFamily>()> collect) {
    const MutexLock lock(metrics_mutex_);
    metrics_ = std::move(collect);
  }
  [[nodiscard]] TestPorts& test_ports() { return test_ports_; }
  [[nodiscard]] GatewaySessions& gateway_sessions() const { return *gateway_options_.sessions; }

  grpc::ServerUnaryReactor* Identify(grpc::CallbackServerContext* context,
                                     const v1::IdentifyRequest* request,
                                     v1::IdentifyResponse* response) override {
    response->set_worker_id(worker_id_);
    response->set_incarnation(ToHex(incarnation_));
    if (request->open_test_ports()) {
      for (const std::string& port : test_ports_.Open(SteadyClock().Now())) {
        response->add_test_ports(port);
      }
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* DialPeer(grpc::CallbackServerContext* context,
                                     const v1::DialPeerRequest* request,
                                     v1::DialPeerResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool taken = dial_threads_.TryRun([this, reactor, request, response] {
      response->set_reach(switchyard::DialPeer(*request, security_));
      reactor->Finish(grpc::Status::OK);
    });
    if (!taken) {
      reactor->Finish(
          StatusToGrpc(MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                                 "this worker dials enough others; ask again later")));
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    // The counters come from the data thread, which gRPC's threads must not wait for.
    status_threads_.Run([this, reactor, request, response, only_of = LimitOf(*context)] {
      reactor->Finish(StatusToGrpc(FillStatus(*request, only_of, response)));
    });
    return reactor;
  }

 private:
  absl::StatusOr<GatewayPart> PartOf(const std::string& caller) {
    TenantRef tenant;
    if (security_ != nullptr) {
      SY_ASSIGN_OR_RETURN(tenant, security_->Admit(caller, kForward));
    }
    return GatewayPart{tenant_memory_.Of(tenant.get()), tenant_sessions_.Of(tenant.get())};
  }
  StreamCall CallOf(grpc::CallbackServerContext* context, const char* method) const {
    return {context, security_ == nullptr ? nullptr : security_->streams(), method};
  }
  // Set: a source, which sees what is its own and nothing of other sources or their models.
  [[nodiscard]] std::optional<std::string> LimitOf(
      const grpc::CallbackServerContext& context) const {
    if (security_ == nullptr) return std::nullopt;
    std::string caller = CallerOf(context);
    constexpr Roles kSeeAll{Role::kOperator, Role::kObserver, Role::kWorker};
    if (security_->RolesOf(caller).Meets(kSeeAll)) return std::nullopt;
    return caller;
  }
  absl::Status FillStatus(const v1::GetStatusRequest& request,
                          const std::optional<std::string>& only_of,
                          v1::GetStatusResponse* response) {
    response->set_worker_id(worker_id_);
    response->set_incarnation(ToHex(incarnation_));
    if (!request.session_id().empty()) {
      Decoder at("GetStatusRequest");
      SessionId session;
      at.Id("session_id", request.session_id(), &session);
      SY_RETURN_IF_ERROR(at.status());
      SY_ASSIGN_OR_RETURN(const std::vector<AttachmentCounters> counters,
                          experts_->CountersOf(session, kStatusTimeout, only_of));
      for (const AttachmentCounters& item : counters) Encode(item, response->add_attachments());
    }
    if (only_of) return absl::OkStatus();
    SY_ASSIGN_OR_RETURN(const ExpertServiceView view, experts_->View(kStatusTimeout));
    Encode(view, response);
    Encode(TotalWorkTimes(experts_->times(), groups_ == nullptr ? nullptr : &groups_->counts()),
           response->mutable_times());
    EncodeOwn(response);
    if (request.metrics()) {
      for (const MetricFamily& family : Metrics()) Encode(family, response->add_metrics());
    }
    return absl::OkStatus();
  }
  // Adds what this server knows by itself.
  void EncodeOwn(v1::GetStatusResponse* response) const {
    const GatewayCounts& gateway = *gateway_options_.counts;
    v1::GatewayStats* out = response->mutable_gateway();
    out->set_steps(gateway.results.load(std::memory_order_relaxed));
    out->set_tokens(gateway.tokens.load(std::memory_order_relaxed));
    out->set_errors(gateway.errors.load(std::memory_order_relaxed));
    out->set_sessions(gateway_options_.sessions->open());
    if (groups_ == nullptr) return;
    const GroupCounts& groups = groups_->counts();
    v1::GroupStats* of = response->mutable_groups();
    of->set_steps(groups.steps.load(std::memory_order_relaxed));
    of->set_rows(groups.exchange.rows.load(std::memory_order_relaxed));
    of->set_errors(groups.failed.load(std::memory_order_relaxed));
    of->set_groups(groups_->groups_open());
  }
  // With the lock held, so that ServeMetrics waits for a call that runs.
  [[nodiscard]] std::vector<MetricFamily> Metrics() const {
    const MutexLock lock(metrics_mutex_);
    return metrics_ ? metrics_() : std::vector<MetricFamily>();
  }

  const std::string worker_id_;
  const Incarnation incarnation_;
  const std::shared_ptr<StepMemory> gateway_memory_;
  TenantMemory tenant_memory_;
  TenantSessions tenant_sessions_;
  const GatewayOptions gateway_options_;
  ExpertService* const experts_;
  GroupService* const groups_;
  SourcePool* const gateway_;
  TestPorts test_ports_;
  const std::shared_ptr<const TransportSecurity> security_;
  ThreadPool dial_threads_;
  AttachThreads attach_threads_;
  ThreadPool group_threads_;
  Logger* const logger_;
  mutable Mutex metrics_mutex_;
  std::function<std::vector<MetricFamily>()> metrics_ SY_GUARDED_BY(metrics_mutex_);
  ThreadPool status_threads_;
  ThreadPool gateway_threads_;
};

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(
    const WorkerServerOptions& options, ExpertService* experts, GroupService* groups,
    SourcePool* gateway) {
  std::unique_ptr<WorkerServer> server(
      new WorkerServer(std::make_unique<ServiceImpl>(options, experts, groups, gateway)));
  GrpcServerOptions grpc = options.grpc;
  // The port's limit is that of its largest method; Attach has a lower one of its own.
  grpc.message_bytes_max = kStepMessageBytesMax;
  SY_ASSIGN_OR_RETURN(server->grpc_, GrpcServer::Start(grpc, {server->service_.get()}));
  return server;
}

GatewayUse WorkerServer::gateway_use() const { return service_->gateway_use(); }

const GatewayCounts& WorkerServer::gateway_counts() const { return service_->gateway_counts(); }

void WorkerServer::ServeMetrics(std::function<std::vector<MetricFamily>()> collect) {
  service_->ServeMetrics(std::move(collect));
}

void WorkerServer::CloseTestPorts(TimePoint now) { service_->test_ports().Close(now); }

void WorkerServer::LeaveGateway() { service_->gateway_sessions().Leave(); }

void WorkerServer::WaitForGateway(TimePoint until) {
  service_->gateway_sessions().WaitUntilDone(kGatewayIdle, until);
}

WorkerServer::WorkerServer(std::unique_ptr<ServiceImpl> service) : service_(std::move(service)) {}
WorkerServer::~WorkerServer() = default;

}  // namespace switchyard
