#include "services/grpc/grpc_server.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include <netdb.h>

#include "core/base/error.h"

namespace switchyard {
namespace {

int Millis(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// An IPv6 address needs brackets, or its last group would be taken for the port.
std::string JoinHostPort(const std::string& host, int port) {
  const bool is_ipv6 = absl::StrContains(host, ":") && !absl::StartsWith(host, "[");
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

// gRPC only logs why it cannot listen. Try the same bind for an errno.
absl::Status WhyNotListening(const GrpcServerOptions& options) {
  const std::string endpoint = JoinHostPort(options.host, options.port);
  const ErrorMetadata metadata{{"endpoint", endpoint}};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int lookup =
      getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (lookup != 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("cannot listen on ", endpoint, ": ", gai_strerror(lookup),
                                  "; use an address of this machine"),
                     metadata);
  }
  int error = 0;
  // A name may have several addresses; the first error is that of gRPC's own attempt.
  for (const addrinfo* it = found; it != nullptr && error == 0; it = it->ai_next) {
    const int fd = socket(it->ai_family, it->ai_socktype | SOCK_CLOEXEC, it->ai_protocol);
    if (fd < 0) continue;
    if (bind(fd, it->ai_addr, it->ai_addrlen) != 0) error = errno;
    close(fd);
  }
  freeaddrinfo(found);
  if (error == 0) {
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("gRPC did not start on ", endpoint,
                                  " although the port is free; its log shows the reason"),
                     metadata);
  }
  if (error == EADDRINUSE) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kAddressInUse,
                     absl::StrCat("cannot listen on ", endpoint,
                                  ": another process uses the port; choose another one, or 0 for "
                                  "any free port"),
                     metadata);
  }
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("cannot listen on ", endpoint, ": ", std::strerror(error),
                                "; use an address and port of this machine that are permitted"),
                   metadata);
}

int Cap(std::size_t message_bytes_max) {
  return static_cast<int>(message_bytes_max + kGrpcCapSlackBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const GrpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  // For probes of orchestrators.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(JoinHostPort(options.host, options.port),
                           grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(Cap(options.message_bytes_max));
  // Otherwise two servers could share a port without an error, and each would receive half of the
  // connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive.ping_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive.ping_timeout));
  // Otherwise gRPC treats keepalive pings on a connection without streams as abuse and closes it.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Millis(options.keepalive.ping_interval_min));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port <= 0) return WhyNotListening(options);
  return std::unique_ptr<GrpcServer>(
      new GrpcServer(std::move(server), port, JoinHostPort(options.host, port)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, int port, std::string endpoint)
    : server_(std::move(server)), port_(port), endpoint_(std::move(endpoint)) {}

GrpcServer::~GrpcServer() { Shutdown(Duration{}); }

void GrpcServer::SetServing(const std::string& name, bool serving) {
  if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
    health->SetServingStatus(name, serving);
  }
}

void GrpcServer::Shutdown(Duration deadline) {
  server_->Shutdown(GrpcDeadline(deadline));
  // Shutdown returns before the last call has ended.
  server_->Wait();
}

gpr_timespec GrpcDeadline(Duration from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(from_now.count(), GPR_TIMESPAN));
}

std::shared_ptr<grpc::Channel> MakeGrpcChannel(const std::string& endpoint,
                                               std::size_t message_bytes_max,
                                               const KeepaliveOptions& keepalive) {
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
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace switchyard
