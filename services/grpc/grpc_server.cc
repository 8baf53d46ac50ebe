#include "services/grpc/grpc_server.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Once gRPC's library for reflection is linked, every server of the process has it; this takes it
// from one.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

int Millis(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

int Cap(std::size_t message_bytes_max) {
  return static_cast<int>(message_bytes_max + kGrpcCapSlackBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  // For probes of orchestrators.
  grpc::EnableDefaultHealthCheckService(true);
  std::shared_ptr<Listener> listener = options.listener;
  if (listener == nullptr) {
    SY_ASSIGN_OR_RETURN(listener, Listener::Bind(options.host, options.port));
  }
  grpc::ServerBuilder builder;
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.security == nullptr ? grpc::InsecureServerCredentials() : options.security->Server());
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  builder.SetMaxReceiveMessageSize(Cap(options.message_bytes_max));
  // Otherwise whoever can connect decides how much memory this process has for half messages.
  grpc::ResourceQuota quota("switchyard");
  // Less by a quarter: gRPC finds that it is at the quota only after it has read, and where its
  // threads wait for CPUs it was seen to hold half as much more for a moment.
  quota.Resize(options.memory_bytes_max - options.memory_bytes_max / 4);
  builder.SetResourceQuota(quota);
  // A connection that says nothing costs a descriptor; one without calls comes back when needed.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Millis(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Millis(kIdleConnectionMax));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive.ping_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive.ping_timeout));
  // Otherwise gRPC treats keepalive pings on a connection without streams as abuse and closes it.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Millis(options.keepalive.ping_interval_min));
  if (options.calls != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> counting;
    counting.push_back(options.calls->MakeFactory());
    builder.experimental().SetInterceptorCreators(std::move(counting));
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     "gRPC did not start a server; its log shows the reason");
  }
  // Shared, because a std::function must be copyable.
  listener->Start([acceptor = std::shared_ptr(std::move(acceptor))](int socket, int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
    handed.listener_fd = socket;
    handed.fd = connection;
    acceptor->HandleNewConnection(&handed);
  });
  std::string endpoint = JoinHostPort(options.host, listener->port());
  return std::unique_ptr<GrpcServer>(
      new GrpcServer(std::move(server), std::move(listener), std::move(endpoint), options.calls));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::shared_ptr<Listener> listener,
                       std::string endpoint, std::shared_ptr<CallCounter> calls)
    : calls_(std::move(calls)),
      server_(std::move(server)),
      listener_(std::move(listener)),
      endpoint_(std::move(endpoint)) {}

GrpcServer::~GrpcServer() { Shutdown(Duration{}); }

void GrpcServer::SetServing(const std::string& name, bool serving) {
  if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
    health->SetServingStatus(name, serving);
  }
}

void GrpcServer::Shutdown(Duration deadline) {
  listener_->Stop();
  server_->Shutdown(GrpcDeadline(deadline));
  // Shutdown returns before the last call has ended.
  server_->Wait();
}

// An IPv6 address needs brackets, or its last group would be taken for the port.
std::string JoinHostPort(const std::string& host, int port) {
  const bool is_ipv6 = absl::StrContains(host, ":") && !absl::StartsWith(host, "[");
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

gpr_timespec GrpcDeadline(Duration from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(from_now.count(), GPR_TIMESPAN));
}

std::shared_ptr<grpc::Channel> MakeGrpcChannel(const std::string& endpoint,
                                               std::size_t message_bytes_max,
                                               const KeepaliveOptions& keepalive,
                                               const PeerSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(Cap(message_bytes_max));
  arguments.SetMaxSendMessageSize(Cap(message_bytes_max));
  // By default, channels with equal arguments share connections through a process-wide pool. Ours
  // do not, so that one user's traffic cannot slow down or close another's connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(keepalive.ping_interval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(keepalive.ping_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Millis(kReconnectFirst));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Millis(kConnectTimeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Millis(kReconnectLast));
  // Short, because a restarted Pod keeps its name but gets a new address.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // A proxy in the environment is not meant for traffic between our own processes.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = security.transport == nullptr
                               ? grpc::InsecureChannelCredentials()
                               : security.transport->Channel(security.role);
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

}  // namespace switchyard
