#include "client/client.h"

#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/registry/runner_registry.h"

namespace switchyard {
namespace {

// Between two attempts to open a session of a deployment that is not ready.
constexpr Duration kReadyPause = std::chrono::milliseconds(50);

}  // namespace

std::unique_ptr<Client> Client::Over(const ClientOptions& options, ClientParts parts) {
  return std::unique_ptr<Client>(new Client(options, std::move(parts)));
}

Client::Client(ClientOptions options, ClientParts parts)
    : options_(std::move(options)),
      sessions_(std::move(parts.sessions)),
      steps_(std::move(parts.steps)) {
  SourceOptions source;
  // Through a gateway this process does not connect to the coordinator: the gateway opens the
  // sessions.
  source.coordinator = steps_ == nullptr ? sessions_.get() : nullptr;
  source.transport = std::move(parts.transport);
  source.make_runner = MakeRunnerFactory({.channel = sessions_.get(),
                                          .transport = source.transport.get(),
                                          .device = std::move(parts.device),
                                          .tensors = std::move(parts.tensors),
                                          .tensors_name = options_.device,
                                          .clock = &clock_,
                                          .rng = &rng_,
                                          .incarnation = parts.incarnation,
                                          .transport_choice = options_.transport,
                                          .steps = steps_.get(),
                                          .gateways = absl::StrSplit(options_.gateway, ',')});
  source.clock = &clock_;
  source_ = Source::Create(std::move(source));
}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<MoeSession>> Client::Open(const OpenSessionRequest& request) {
  SY_ASSIGN_OR_RETURN(const Source::SessionRef session, source_->Open(request, options_.timeout));
  return std::make_unique<MoeSession>(source_.get(), session, sessions_.get(), options_.timeout);
}

absl::StatusOr<std::unique_ptr<MoeSession>> Client::OpenWhenReady(const OpenSessionRequest& request,
                                                                  Duration ready_timeout) {
  const TimePoint until = clock_.Now() + ready_timeout;
  while (true) {
    absl::StatusOr<std::unique_ptr<MoeSession>> session = Open(request);
    if (session.ok() || ReasonOf(session.status()) != Reason::kNotReady || clock_.Now() >= until) {
      return session;
    }
    // There is no event to wait for: the coordinator announces plans only to open sessions.
    absl::SleepFor(absl::FromChrono(kReadyPause));
  }
}

TransportStats Client::transport_stats() { return source_->transport_stats(); }

}  // namespace switchyard
