// Client::Connect: the wiring to gRPC and UCX. Apart from client.cc, so that what takes its parts
// from elsewhere links neither.
#include <utility>

#include "client/client.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  if (options.coordinator.empty() == options.gateway.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "name either a coordinator (steps from this process) or a gateway (steps "
                     "through a worker), as \"host:port\"");
  }
  ClientParts parts;
  SystemRng rng;
  parts.incarnation = rng.NextId<Incarnation>();
  // Through a gateway only workers are asked, each at its own address; gRPC wants one for the
  // channel.
  parts.sessions =
      MakeGrpcSessionChannel(options.gateway.empty() ? options.coordinator : options.gateway);
  SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
  if (!options.gateway.empty()) {
    parts.steps = MakeGrpcStepChannel(options.gateway);
  } else {
    SY_ASSIGN_OR_RETURN(parts.transport,
                        MakeTransport("ucx", {.incarnation = parts.incarnation,
                                              .net_devices = options.net_devices}));
  }
  return Over(options, std::move(parts));
}

}  // namespace switchyard
