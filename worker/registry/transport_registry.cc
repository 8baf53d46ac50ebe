#include "worker/registry/transport_registry.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "worker/transport/loopback/transport.h"
#include "worker/transport/ucx/log.h"
#include "worker/transport/ucx/transport.h"

namespace switchyard {
namespace {

using Transported = absl::StatusOr<std::unique_ptr<Transport>>;

struct Row {
  const char* name;
  Transported (*make)(const TransportOptions& options);
};

Transported MakeUcx(const TransportOptions& options) {
  return UcxTransport::Create({.incarnation = options.incarnation,
                               .busy_poll = options.busy_poll,
                               .ring_dir = options.ring_dir,
                               .context = {.net_devices = options.net_devices,
                                           .ports = options.ports,
                                           .log_level = options.ucx_log_level}});
}

Transported MakeLoopback(const TransportOptions& options) {
  return LoopbackTransport::Create(
      {.incarnation = options.incarnation, .busy_poll = options.busy_poll, .hub = options.hub});
}

constexpr std::array kRows = {Row{"ucx", &MakeUcx}, Row{"loopback", &MakeLoopback}};

}  // namespace

std::vector<absl::string_view> TransportNames() {
  std::vector<absl::string_view> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

void WriteTransportLogs(LogFormat format, LogLevel level) { WriteUcxLog(format, level); }

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(absl::string_view name,
                                                         const TransportOptions& options) {
  for (const Row& row : kRows) {
    // Each transport takes its own options and ignores the others'.
    if (name == row.name) return row.make(options);
  }
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("no transport \"", name, "\" in this build; it has ",
                                absl::StrJoin(TransportNames(), ", ")));
}

}  // namespace switchyard
