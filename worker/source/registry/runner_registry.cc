#include "worker/source/registry/runner_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/gateway/gateway_runner.h"
#include "worker/source/p2p/p2p_runner.h"

namespace switchyard {
namespace {

using MadeRunner = absl::StatusOr<std::unique_ptr<StepRunner>>;

MadeRunner NoRunner(Binding binding) {
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrCat("this source cannot run steps over the binding ", BindingName(binding),
                   "; open the session through a coordinator for "
                   "p2p, or through a gateway for gateway"),
      {{"binding", std::string(BindingName(binding))}});
}

MadeRunner MakeP2p(const RunnerParts& parts, SessionGrant grant, std::function<void()> wake) {
  if (parts.transport == nullptr) return NoRunner(grant.binding);
  // Rows are encoded in their slots and summed there; a runner that copies them is another one.
  const MemoryKind slots = parts.transport->slot_memory();
  if (slots == MemoryKind::kHost && !parts.device->host_access()) {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     absl::StrCat("the rings of this transport are in ", MemoryKindName(slots),
                                  " memory, which this source's device does not reach; give the "
                                  "source another device"),
                     {{"binding", std::string(BindingName(grant.binding))}});
  }
  P2pRunnerOptions options;
  options.channel = parts.channel;
  options.transport = parts.transport;
  options.device = parts.device.get();
  SY_ASSIGN_OR_RETURN(options.stream, parts.device->MakeStream(
                                          {.work_class = WorkClass::kDecode, .on_progress = wake}));
  options.clock = parts.clock;
  options.rng = parts.rng;
  options.wake = std::move(wake);
  options.own_experts = parts.own_experts;
  options.own_worker_id = parts.own_worker_id;
  options.incarnation = parts.incarnation;
  options.grant = std::move(grant);
  options.transport_choice = parts.transport_choice;
  return std::make_unique<P2pRunner>(std::move(options));
}

MadeRunner MakeGateway(const RunnerParts& parts, SessionGrant grant, std::function<void()> wake) {
  if (parts.steps == nullptr) return NoRunner(grant.binding);
  return std::make_unique<GatewayRunner>(GatewayRunnerOptions{.steps = parts.steps,
                                                              .gateways = parts.gateways,
                                                              .request = std::move(grant.request),
                                                              .wake = std::move(wake)});
}

}  // namespace

RunnerFactory MakeRunnerFactory(RunnerParts parts) {
  // Shared, because a std::function can be copied and the device cannot.
  return [shared = std::make_shared<const RunnerParts>(std::move(parts))](
             SessionGrant grant, std::function<void()> wake) -> MadeRunner {
    // A switch, not a table: the compiler then names every place that a new binding must fill.
    switch (grant.binding) {
      case Binding::kP2p:
        return MakeP2p(*shared, std::move(grant), std::move(wake));
      case Binding::kGateway:
        return MakeGateway(*shared, std::move(grant), std::move(wake));
    }
    return NoRunner(grant.binding);
  };
}

}  // namespace switchyard
