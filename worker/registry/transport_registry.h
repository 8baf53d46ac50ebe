// The transports of this build, by name. A further one is a folder and a line in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/port_range.h"
#include "core/ids.h"
#include "worker/transport/transport.h"

namespace switchyard {

class LoopbackHub;  // worker/transport/loopback/hub.h

// Options of all transports; each reads its own.
struct TransportOptions {
  Incarnation incarnation{};  // of this process
  // How long a thread looks for further frames, instead of sleeping, after each that came or went.
  // Takes a CPU meanwhile; 0 where threads may outnumber cores.
  Duration busy_poll{};
  LoopbackHub* hub = nullptr;  // only for loopback; outlives the transport
  // Only for ucx: devices for tcp, e.g. "eth0,lo", and how much UCX prints (ucx/context.h); empty:
  // as WriteTransportLogs has set it.
  std::string net_devices = "all";
  std::string ucx_log_level = "fatal";
  PortRange ports{};  // only for ucx: to listen on
  // Only for ucx: where the sockets are over which processes pass each other their rings; empty: in
  // the network namespace (local_socket.h).
  std::string ring_dir{};
};

// "ucx" and "loopback", the names in RingOffer.transport.
std::vector<absl::string_view> TransportNames();

// Brings the lines that the libraries of the transports write by themselves into the log, as
// WriteUcxLog does (worker/transport/ucx/log.h).
void WriteTransportLogs(LogFormat format, LogLevel level);

// Errors: kInvalidArgument (BAD_CONFIG) for a name that is not in TransportNames(), and those of
// the transport's own Create.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(absl::string_view name,
                                                         const TransportOptions& options);

}  // namespace switchyard
