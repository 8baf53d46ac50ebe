// Client::Connect: the wiring to gRPC and UCX. It is not in client.cc, so that programs that bring
// their own parts link neither.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/client.h"
#include "core/base/dial_address.h"
#include "core/base/error.h"
#include "core/base/port_range.h"
#include "core/base/status_macros.h"
#include "services/channels/grpc_channels.h"
#include "services/config/security_files.h"
#include "services/tracing/trace_exporter.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"

namespace switchyard {
namespace {

// How long the end of a client may wait for a collector that does not answer.
constexpr Duration kLastSpans = std::chrono::milliseconds(500);

// A mistake in one of several addresses would show only when the others are lost.
absl::Status CheckGateways(const std::string& gateways) {
  for (const absl::string_view gateway : absl::StrSplit(gateways, ',')) {
    const std::string why = WhyNotDialable(gateway);
    if (why.empty()) continue;
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     absl::StrCat("gateway \"", gateway, "\" ", why,
                                  "; give \"host:port\", or several with commas between"),
                     {{"field", "gateway"}});
  }
  return absl::OkStatus();
}

absl::StatusOr<PortRange> DataPortsOf(const ClientOptions& options) {
  const std::optional<PortRange> ports = ParsePortRange(options.data_ports);
  if (ports.has_value()) return *ports;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("data_ports \"", options.data_ports,
                                "\" is not FIRST-LAST, two ports from 1024 on"),
                   {{"field", "data_ports"}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  if (options.coordinator.empty() == options.gateway.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "name either a coordinator (steps from this process) or a gateway (steps "
                     "through a worker), as \"host:port\"");
  }
  if (!options.gateway.empty()) SY_RETURN_IF_ERROR(CheckGateways(options.gateway));
  SY_ASSIGN_OR_RETURN(const PortRange ports, DataPortsOf(options));
  ClientParts parts;
  if (!options.device.empty()) {
    SY_ASSIGN_OR_RETURN(parts.tensors, MakeDevice(options.device));
    // Its memory is the host's, and so no step needs a copy.
    if (parts.tensors->host_access()) parts.device = std::move(parts.tensors);
  }
  SystemRng rng;
  parts.incarnation = rng.NextId<Incarnation>();
  SY_ASSIGN_OR_RETURN(const std::shared_ptr<const TransportSecurity> security,
                      OpenSecurity(options.tls_dir, /*logger=*/nullptr));
  // With a gateway this channel only reads counters from workers.
  parts.sessions = MakeGrpcSessionChannel(options.coordinator, security);
  if (!options.gateway.empty()) {
    parts.steps = MakeGrpcStepChannel(security);
  } else {
    if (parts.device == nullptr) {
      SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
    }
    parts.make_transport = [options, ports](Incarnation incarnation) {
      return MakeTransport("ucx", {.incarnation = incarnation,
                                   .busy_poll = options.busy_poll,
                                   .net_devices = options.net_devices,
                                   .ports = ports,
                                   .ring_dir = options.ring_dir});
    };
    SY_ASSIGN_OR_RETURN(parts.transport, parts.make_transport(parts.incarnation));
    parts.traces = std::make_unique<TraceExporter>(TraceExporterOptions{
        .service = "switchyard-client", .instance = ToHex(parts.incarnation), .grace = kLastSpans});
  }
  return Over(options, std::move(parts));
}

}  // namespace switchyard
