#include "services/coordinator/coordinator_server.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

#include "coordinator/driver.h"
#include "core/base/error.h"
#include "core/base/name.h"
#include "core/base/product_version.h"
#include "core/base/status_macros.h"
#include "core/protocol_version.h"
#include "grpc/health/v1/health.pb.h"
#include "services/convert/admin.h"
#include "services/convert/control.h"
#include "services/convert/session.h"
#include "services/coordinator/admin_queries.h"
#include "services/coordinator/encoded_plans.h"
#include "services/coordinator/load_query.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/server_streams.h"
#include "services/system/metrics_message.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "switchyard/v1/worker_control.grpc.pb.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

StreamGuard* GuardOf(const std::shared_ptr<const TransportSecurity>& security) {
  return security == nullptr ? nullptr : security->streams();
}

constexpr char kOpenSession[] = "/switchyard.v1.CoordinatorService/OpenSession";
constexpr char kWatchPlan[] = "/switchyard.v1.CoordinatorService/WatchPlan";

// Null without TLS: callers are not known.
absl::StatusOr<TenantRef> Admit(const TransportSecurity* security, const std::string& id,
                                absl::string_view method) {
  if (security == nullptr) return nullptr;
  return security->Admit(id, method);
}

// One worker's stream, from its membership's beginning to its end. Deletes itself.
class WorkerStream final : public ServerBidiStream<v1::SessionRequest, v1::SessionResponse>,
                           public WorkerStreamSink {
 public:
  WorkerStream(const StreamCall& call, Driver* driver,
               std::shared_ptr<const TransportSecurity> security, std::string caller)
      : ServerBidiStream(call, {.request_bytes_max = kSmallMessageBytesMax}),
        driver_(driver),
        security_(std::move(security)),
        caller_(std::move(caller)) {}

  // Called in the handler. gRPC delivers nothing, not even OnDone, before the handler has returned,
  // so that `stream_` is set by then.
  void Begin() {
    StartSendInitialMetadata();  // So that the worker knows the coordinator is up before it
                                 // answers.
    const absl::StatusOr<StreamId> stream = driver_->OpenWorkerStream(this);
    if (!stream.ok()) return End(stream.status());
    stream_ = *stream;
    BeginReading();
  }

  // WorkerStreamSink
  void Send(const CoordinatorMessage& message) override {
    // An oversized message would break the stream at the worker, which cannot know the reason.
    v1::SessionResponse proto = ToProto(message);
    if (const absl::Status size = CheckMessageSize(proto, kControlMessageBytesMax); !size.ok()) {
      return End(size);
    }
    Write(std::move(proto));
  }
  void Close(const absl::Status& why) override { End(why); }

 private:
  void OnRequest(v1::SessionRequest& request) override {
    // The last one that gives it up lets the stream read on, and it may be deleted then.
    const std::shared_ptr<const void> handled(this, [this](const void*) { ReadNext(); });
    absl::StatusOr<WorkerMessage> message = FromProto(request);
    absl::Status result = message.ok() ? CheckPool(*message) : message.status();
    if (result.ok()) result = driver_->OnWorkerMessage(stream_, *std::move(message), handled);
    // A message that cannot be used ends the stream: the worker registers again and says where it
    // stands.
    if (!result.ok()) End(result);
  }
  void OnStreamDone() override {
    // Unset when the driver refused the stream: it does not know it.
    if (stream_.value != 0) driver_->OnWorkerStreamClosed(stream_);
  }
  // A worker's id is what it claims; its pool has to be one of its certificate's.
  [[nodiscard]] absl::Status CheckPool(const WorkerMessage& message) const {
    const auto* joining = std::get_if<Register>(&message);
    if (joining == nullptr || security_ == nullptr) return absl::OkStatus();
    return security_->AdmitToPool(caller_, joining->pool);
  }

  Driver* const driver_;
  const std::shared_ptr<const TransportSecurity> security_;  // null: callers are not known
  const std::string caller_;
  StreamId stream_;
};

class WorkerControlServiceImpl final : public v1::WorkerControlService::CallbackService {
 public:
  WorkerControlServiceImpl(Driver* driver, std::shared_ptr<const TransportSecurity> security)
      : driver_(driver), security_(std::move(security)) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override {
    const StreamCall call{context, GuardOf(security_),
                          "/switchyard.v1.WorkerControlService/Session"};
    // It deletes itself.
    auto* stream = new WorkerStream(call, driver_, security_, CallerOf(*context));
    stream->Begin();
    return stream;
  }

 private:
  Driver* const driver_;
  const std::shared_ptr<const TransportSecurity> security_;
};

// One source's watch of its plan. Deletes itself.
class WatchStream final
    : public ServerStream<grpc::ServerWriteReactor<grpc::ByteBuffer>, grpc::ByteBuffer>,
      public PlanUpdateSink {
 public:
  WatchStream(const StreamCall& call, Driver* driver, EncodedPlans* plans)
      : ServerStream(call, kStreamQueueBytesMax), driver_(driver), plans_(plans) {}

  // Called in the handler, like WorkerStream::Begin.
  void Begin(const grpc::ByteBuffer& bytes, std::string peer, absl::StatusOr<TenantRef> tenant) {
    if (!tenant.ok()) return End(tenant.status());
    // Decoding takes the buffer, whose copies share its memory.
    grpc::ByteBuffer taken(bytes);
    v1::WatchPlanRequest request;
    const absl::Status decoded = StatusFromGrpc(
        grpc::SerializationTraits<v1::WatchPlanRequest>::Deserialize(&taken, &request));
    if (!decoded.ok()) {
      return End(MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                           absl::StrCat("WatchPlanRequest: ", decoded.message())));
    }
    absl::StatusOr<WatchRequest> watched = FromProto(request);
    if (!watched.ok()) return End(watched.status());
    watched->caller = caller();
    const absl::StatusOr<WatchId> watch =
        driver_->Watch(*watched, this, std::move(peer), *std::move(tenant));
    if (!watch.ok()) return End(watch.status());
    watch_ = *watch;
    BeginGuard();
  }

  // PlanUpdateSink
  void OnPlanUpdate(const std::shared_ptr<const PlanUpdate>& update) override {
    absl::StatusOr<grpc::ByteBuffer> bytes = plans_->Of(update);
    if (!bytes.ok()) return End(bytes.status());
    Write(*std::move(bytes));
  }
  void OnClosed(const absl::Status& why) override { End(why); }

 private:
  void OnStreamDone() override {
    if (watch_.value != 0) driver_->StopWatch(watch_);
  }

  Driver* const driver_;
  EncodedPlans* const plans_;
  WatchId watch_;
};

// Finishes a unary call at once.
// The view is a snapshot, so queries need no thread but gRPC's.
template <typename Response>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Response* out,
                                 absl::StatusOr<Response> result) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (result.ok()) *out = *std::move(result);
  reactor->Finish(StatusToGrpc(result.status()));
  return reactor;
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(StatusToGrpc(status));
  return reactor;
}

// Fills in who opens the session, and checks whom a gateway opens it for, whose tenant it returns.
absl::StatusOr<TenantRef> NameCaller(std::string caller, const TransportSecurity* security,
                                     OpenSessionRequest* request) {
  request->caller = std::move(caller);
  // Without TLS nobody has verified it.
  if (security == nullptr) request->on_behalf_of.clear();
  if (request->on_behalf_of.empty()) return Admit(security, request->caller, kOpenSession);
  if (!security->RolesOf(request->caller).Has(Role::kWorker)) {
    return MakeError(
        absl::StatusCode::kPermissionDenied, Reason::kTransport,
        absl::StrCat(request->caller, " may not open sessions on behalf of others; worker may"),
        {{"id", request->caller}});
  }
  // The gateway knows its caller; this process goes by a table of its own.
  absl::StatusOr<TenantRef> tenant = Admit(security, request->on_behalf_of, kOpenSession);
  if (tenant.ok()) return tenant;
  return Annotate(tenant.status(), "coordinator, for a caller of the gateway");
}

// A name of any other form belongs to nothing, and would be repeated in the error.
absl::Status CheckName(absl::string_view field, const std::string& name) {
  if (IsName(name)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat(field, " must be 1 to 128 characters of [A-Za-z0-9._-]"),
                   {{"field", std::string(field)}});
}

// WatchPlan is raw: its answers are encoded once for all watchers.
using CoordinatorMethods = v1::CoordinatorService::WithRawCallbackMethod_WatchPlan<
    v1::CoordinatorService::CallbackService>;

class CoordinatorServiceImpl final : public CoordinatorMethods {
 public:
  CoordinatorServiceImpl(Driver* driver, const CoordinatorServerOptions& options)
      : driver_(driver),
        incarnation_(options.incarnation),
        metrics_(options.metrics),
        security_(options.grpc.security) {}

  grpc::ServerUnaryReactor* ApplyDeployment(grpc::CallbackServerContext* context,
                                            const v1::ApplyDeploymentRequest* request,
                                            v1::ApplyDeploymentResponse* response) override {
    // Refused before conversion, which makes several copies of it.
    if (const absl::Status size = CheckMessageSize(*request, kControlMessageBytesMax); !size.ok()) {
      return Refuse(context, size);
    }
    absl::StatusOr<DeploymentSpec> spec = FromProto(*request);
    if (!spec.ok()) return Refuse(context, spec.status());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->ApplyDeployment(
        *std::move(spec), request->validate_only(),
        [reactor, response](const absl::StatusOr<DeploymentView>& view) {
          if (view.ok()) *response = ApplyResponse(*view);
          reactor->Finish(StatusToGrpc(view.status()));
        },
        request->hash_weights());
    return reactor;
  }

  grpc::ServerUnaryReactor* DeleteDeployment(grpc::CallbackServerContext* context,
                                             const v1::DeleteDeploymentRequest* request,
                                             v1::DeleteDeploymentResponse* response) override {
    if (const absl::Status named = CheckName("name", request->name()); !named.ok()) {
      return Refuse(context, named);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->DeleteDeployment(request->name(), request->now(),
                              [reactor, response](const absl::StatusOr<DeploymentView>& view) {
                                if (view.ok()) Encode(*view, response->mutable_deployment());
                                reactor->Finish(StatusToGrpc(view.status()));
                              });
    return reactor;
  }
  grpc::ServerUnaryReactor* RollbackDeployment(grpc::CallbackServerContext* context,
                                               const v1::RollbackDeploymentRequest* request,
                                               v1::RollbackDeploymentResponse* response) override {
    if (const absl::Status named = CheckName("name", request->name()); !named.ok()) {
      return Refuse(context, named);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->RollbackDeployment(request->name(), request->to_revision(),
                                [reactor, response](const absl::StatusOr<DeploymentView>& view) {
                                  if (view.ok()) Encode(*view, response->mutable_deployment());
                                  reactor->Finish(StatusToGrpc(view.status()));
                                });
    return reactor;
  }
  grpc::ServerUnaryReactor* CordonWorker(grpc::CallbackServerContext* context,
                                         const v1::CordonWorkerRequest* request,
                                         v1::CordonWorkerResponse* response) override {
    return SetDuty(context, request->id(), WorkerDuty::kCordoned, /*force=*/false, response);
  }
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override {
    return SetDuty(context, request->id(), WorkerDuty::kDraining, request->force(), response);
  }
  grpc::ServerUnaryReactor* UncordonWorker(grpc::CallbackServerContext* context,
                                           const v1::UncordonWorkerRequest* request,
                                           v1::UncordonWorkerResponse* response) override {
    return SetDuty(context, request->id(), WorkerDuty::kServe, /*force=*/false, response);
  }

  grpc::ServerUnaryReactor* GetDeployment(grpc::CallbackServerContext* context,
                                          const v1::GetDeploymentRequest* request,
                                          v1::GetDeploymentResponse* response) override {
    return Answer(context, response, switchyard::GetDeployment(driver_->View(), *request));
  }
  grpc::ServerUnaryReactor* ListDeployments(grpc::CallbackServerContext* context,
                                            const v1::ListDeploymentsRequest* /*request*/,
                                            v1::ListDeploymentsResponse* response) override {
    return Answer<v1::ListDeploymentsResponse>(context, response,
                                               switchyard::ListDeployments(driver_->View()));
  }
  grpc::ServerUnaryReactor* ListRevisions(grpc::CallbackServerContext* context,
                                          const v1::ListRevisionsRequest* request,
                                          v1::ListRevisionsResponse* response) override {
    return Answer(context, response, switchyard::ListRevisions(driver_->View(), *request));
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* /*request*/,
                                       v1::ListModelsResponse* response) override {
    return Answer<v1::ListModelsResponse>(context, response,
                                          switchyard::ListModels(driver_->View()));
  }
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* /*request*/,
                                        v1::ListWorkersResponse* response) override {
    return Answer<v1::ListWorkersResponse>(context, response,
                                           switchyard::ListWorkers(driver_->View()));
  }
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override {
    return Answer<v1::ListEventsResponse>(
        context, response, switchyard::ListEvents(driver_->JournalAfter(0), *request));
  }
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* /*request*/,
                                         v1::ListSessionsResponse* response) override {
    return Answer<v1::ListSessionsResponse>(context, response,
                                            switchyard::ListSessions(driver_->Sessions()));
  }
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const v1::GetLoadRequest* request,
                                    v1::GetLoadResponse* response) override {
    return Answer(context, response,
                  switchyard::GetLoad(driver_->View(), *request,
                                      [this](const std::string& name, const LoadQuery& query) {
                                        return driver_->Load(name, query);
                                      }));
  }
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context,
                                    const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override {
    return Answer(context, response, switchyard::GetPlan(driver_->View(), *request));
  }
  grpc::ServerUnaryReactor* ExplainLayer(grpc::CallbackServerContext* context,
                                         const v1::ExplainLayerRequest* request,
                                         v1::ExplainLayerResponse* response) override {
    return Answer(context, response, switchyard::ExplainLayer(driver_->View(), *request));
  }
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* /*request*/,
                                       v1::GetMetricsResponse* response) override {
    v1::GetMetricsResponse metrics;
    if (metrics_) {
      for (const MetricFamily& family : metrics_()) Encode(family, metrics.add_metrics());
    }
    return Answer<v1::GetMetricsResponse>(context, response, std::move(metrics));
  }
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* /*request*/,
                                       v1::GetVersionResponse* response) override {
    v1::GetVersionResponse version;
    version.set_version(kProductVersion);
    version.set_frame_version(kFrameVersion);
    version.set_protocol_version(kProtocolVersion);
    version.set_incarnation(ToHex(incarnation_));
    return Answer<v1::GetVersionResponse>(context, response, std::move(version));
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override {
    if (const absl::Status size = CheckMessageSize(*request, kSmallMessageBytesMax); !size.ok()) {
      return Refuse(context, size);
    }
    absl::StatusOr<OpenSessionRequest> session = FromProto(*request);
    if (!session.ok()) return Refuse(context, session.status());
    absl::StatusOr<TenantRef> tenant = NameCaller(CallerOf(*context), security_.get(), &*session);
    if (!tenant.ok()) return Refuse(context, tenant.status());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->OpenSession(
        *session,
        [reactor, response](const absl::StatusOr<SessionGrant>& grant) {
          if (grant.ok()) *response = ToProto(*grant);
          reactor->Finish(StatusToGrpc(grant.status()));
        },
        *std::move(tenant));
    return reactor;
  }
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* /*response*/) override {
    const absl::StatusOr<SessionId> session = FromProto(*request);
    if (!session.ok()) return Refuse(context, session.status());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->CloseSession(
        *session, [reactor](const absl::Status& status) { reactor->Finish(StatusToGrpc(status)); },
        CallerOf(*context));
    return reactor;
  }
  using CoordinatorMethods::WatchPlan;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchPlan(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request) override {
    const StreamCall call{context, GuardOf(security_), kWatchPlan};
    auto* stream = new WatchStream(call, driver_, &plans_);  // deletes itself
    stream->Begin(*request, context->peer(),
                  Admit(security_.get(), CallerOf(*context), kWatchPlan));
    return stream;
  }

 private:
  template <typename Response>
  grpc::ServerUnaryReactor* SetDuty(grpc::CallbackServerContext* context, const std::string& worker,
                                    WorkerDuty duty, bool force, Response* response) {
    if (const absl::Status named = CheckName("id", worker); !named.ok()) {
      return Refuse(context, named);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_->SetDuty(worker, duty, force, [reactor, response](absl::StatusOr<DutyView> view) {
      if (view.ok() && view->worker) Encode(*view->worker, response->mutable_worker());
      if constexpr (std::is_same_v<Response, v1::DrainWorkerResponse>) {
        if (view.ok())
          response->mutable_warnings()->Assign(view->warnings.begin(), view->warnings.end());
      }
      reactor->Finish(StatusToGrpc(view.status()));
    });
    return reactor;
  }

  Driver* const driver_;
  const Incarnation incarnation_;
  const std::function<std::vector<MetricFamily>()> metrics_;
  const std::shared_ptr<const TransportSecurity> security_;
  EncodedPlans plans_;
};

}  // namespace

struct CoordinatorServer::Services {
  Services(Driver* driver, const CoordinatorServerOptions& options)
      : coordinator(driver, options), control(driver, options.grpc.security) {}
  CoordinatorServiceImpl coordinator;
  WorkerControlServiceImpl control;
};

CoordinatorServer::CoordinatorServer(std::unique_ptr<Services> services)
    : services_(std::move(services)) {}
CoordinatorServer::~CoordinatorServer() = default;

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const CoordinatorServerOptions& options, Driver* driver) {
  // By calls, since a linker may leave out a library that nothing calls. gRPC's own health service
  // brings no description of itself.
  if (options.grpc.reflection) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::health::v1::HealthCheckRequest::descriptor();
  }
  std::unique_ptr<CoordinatorServer> server(
      new CoordinatorServer(std::make_unique<Services>(driver, options)));
  SY_ASSIGN_OR_RETURN(server->grpc_,
                      GrpcServer::Start(options.grpc, {&server->services_->coordinator,
                                                       &server->services_->control}));
  return server;
}

}  // namespace switchyard
