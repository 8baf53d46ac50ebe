#include "client/client.h"

#include <utility>

#include "client/gateway_session.h"
#include "client/source_moe_session.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr Duration kReadyPause = std::chrono::milliseconds(50);

}  // namespace

std::unique_ptr<Client> Client::Over(const ClientOptions& options, ClientParts parts) {
  return std::unique_ptr<Client>(new Client(options, std::move(parts)));
}

Client::Client(ClientOptions options, ClientParts parts)
    : options_(std::move(options)),
      sessions_(std::move(parts.sessions)),
      steps_(std::move(parts.steps)) {
  if (parts.transport == nullptr) {
    device_ = std::move(parts.device);
    return;
  }
  SourceOptions source;
  source.channel = sessions_.get();
  source.transport = std::move(parts.transport);
  source.device = std::move(parts.device);
  source.clock = &clock_;
  source.rng = &rng_;
  source.incarnation = parts.incarnation;
  source_ = Source::Create(std::move(source));
}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<MoeSession>> Client::Open(const OpenSessionRequest& order) {
  if (source_ == nullptr) {
    SY_ASSIGN_OR_RETURN(OpenedGateway opened, OpenGatewaySession({.steps = steps_.get(),
                                                                  .sessions = sessions_.get(),
                                                                  .device = device_.get(),
                                                                  .clock = &clock_,
                                                                  .timeout = options_.timeout},
                                                                 order));
    const std::lock_guard<std::mutex> lock(mutex_);
    gateway_worker_ = opened.worker_id;
    return std::move(opened.session);
  }
  SY_ASSIGN_OR_RETURN(const Source::SessionRef session,
                      source_->Open(order, options_.transport, options_.timeout));
  return MakeSourceMoeSession(source_.get(), session, sessions_.get(), options_.timeout);
}

absl::StatusOr<std::unique_ptr<MoeSession>> Client::OpenWhenReady(const OpenSessionRequest& order,
                                                                  Duration ready_timeout) {
  const TimePoint until = clock_.Now() + ready_timeout;
  while (true) {
    absl::StatusOr<std::unique_ptr<MoeSession>> session = Open(order);
    if (session.ok() || ReasonOf(session.status()) != Reason::kNotReady || clock_.Now() >= until) {
      return session;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    closing_.wait_for(lock, kReadyPause);
  }
}

std::string Client::gateway_worker() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return gateway_worker_;
}

TransportStats Client::transport_stats() {
  return source_ == nullptr ? TransportStats{} : source_->transport_stats();
}

}  // namespace switchyard
