// The coordinator's settings of traces, which it passes to workers when they register and to
// sources in the grant.
#pragma once

#include <string>

namespace switchyard {

struct TraceSettings {
  double ratio = 0;      // the part of all steps that is traced, 0 to 1; 0: none
  std::string endpoint;  // "host:port" of an OTLP/gRPC collector, as each process reaches it
  [[nodiscard]] bool on() const { return ratio > 0 && !endpoint.empty(); }
  friend bool operator==(const TraceSettings&, const TraceSettings&) = default;
};

}  // namespace switchyard
