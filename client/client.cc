#include "client/client.h"

#include <memory>
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

// The devices are shared too: they have no state of a session.
struct Client::Shared {
  std::unique_ptr<SessionChannel> sessions;
  std::unique_ptr<StepChannel> steps;
  std::shared_ptr<DeviceBackend> device;
  std::shared_ptr<DeviceBackend> tensors;
  std::unique_ptr<TraceSink> traces;
  SteadyClock clock;
  SystemRng rng;
};

Client::Client(ClientOptions options, ClientParts parts)
    : options_(std::move(options)), shared_(std::make_unique<Shared>()) {
  Shared& shared = *shared_;
  shared.sessions = std::move(parts.sessions);
  shared.steps = std::move(parts.steps);
  shared.device = std::move(parts.device);
  shared.tensors = std::move(parts.tensors);
  shared.traces = std::move(parts.traces);
  const auto make = [this](std::unique_ptr<Transport> transport, Incarnation incarnation) {
    Shared& of = *shared_;
    SourceOptions source;
    // Through a gateway this process does not connect to the coordinator: the gateway opens the
    // sessions.
    source.coordinator = of.steps == nullptr ? of.sessions.get() : nullptr;
    source.transport = std::move(transport);
    source.make_runner = MakeRunnerFactory({.channel = of.sessions.get(),
                                            .transport = source.transport.get(),
                                            .device = of.device,
                                            .tensors = of.tensors,
                                            .tensors_name = options_.device,
                                            .clock = &of.clock,
                                            .rng = &of.rng,
                                            .incarnation = incarnation,
                                            .traces = of.traces.get(),
                                            .transport_choice = options_.transport,
                                            .ring_dir = options_.ring_dir,
                                            .rank_host = options_.worker,
                                            .steps = of.steps.get(),
                                            .gateways = absl::StrSplit(options_.gateway, ',')});
    source.clock = &of.clock;
    return Source::Create(std::move(source));
  };
  SourcePool::MakeSource further;
  if (parts.make_transport != nullptr) {
    further = [this, make,
               make_transport =
                   std::move(parts.make_transport)]() -> absl::StatusOr<std::unique_ptr<Source>> {
      const auto incarnation = shared_->rng.NextId<Incarnation>();
      SY_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, make_transport(incarnation));
      return make(std::move(transport), incarnation);
    };
  } else if (shared.steps != nullptr) {
    further = [this, make] { return make(nullptr, shared_->rng.NextId<Incarnation>()); };
  }
  sources_ = std::make_unique<SourcePool>(make(std::move(parts.transport), parts.incarnation),
                                          std::move(further));
}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<MoeSession>> Client::Open(const OpenSessionRequest& request) {
  std::shared_ptr<Source> source = sources_->Take();
  OpenSessionRequest full = request;
  // The tensors' device is a rank of the group; other bindings see a source on the host.
  const DeviceKind device =
      shared_->tensors != nullptr ? shared_->tensors->capabilities().device : full.source;
  if (full.binding == BindingChoice::kCollective) full.source = device;
  if (full.binding == BindingChoice::kAuto && !full.group.name.empty()) full.group.device = device;
  SY_ASSIGN_OR_RETURN(const Source::SessionRef session, source->Open(full, options_.timeout));
  return std::make_unique<MoeSession>(std::move(source), session, shared_->sessions.get(),
                                      options_.timeout, shared_->traces.get());
}

absl::StatusOr<std::unique_ptr<MoeSession>> Client::OpenWhenReady(const OpenSessionRequest& request,
                                                                  Duration ready_timeout) {
  const TimePoint until = shared_->clock.Now() + ready_timeout;
  while (true) {
    absl::StatusOr<std::unique_ptr<MoeSession>> session = Open(request);
    if (session.ok() || ReasonOf(session.status()) != Reason::kNotReady ||
        shared_->clock.Now() >= until) {
      return session;
    }
    // There is no event to wait for: the coordinator announces plans only to open sessions.
    absl::SleepFor(absl::FromChrono(kReadyPause));
  }
}

TransportStats Client::transport_stats() { return sources_->stats(); }

}  // namespace switchyard
