// The system port of a program: what orchestrators probe and Prometheus scrapes, over plain HTTP.
//
//   /livez     200 "ok", or 503 and one line that says what is missing and what to do
//   /readyz    the same for readiness
//   /metrics   Prometheus' text format
//
// and what the program adds to them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "services/system/health_monitor.h"
#include "services/system/http_server.h"

namespace switchyard {

// Thread-safe.
class SystemServer {
 public:
  // Starts to listen. `health` outlives the server. `metrics` may wait a second for others; it is
  // called by up to kHttpSlowPagesMax threads at once, and by none after the destructor. `more` are
  // further pages. Errors: those of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<SystemServer>> Start(const HttpServerOptions& options,
                                                             HealthMonitor* health,
                                                             std::function<std::string()> metrics,
                                                             std::vector<HttpPage> more = {});

  [[nodiscard]] const std::string& endpoint() const { return http_->endpoint(); }  // "host:port"

 private:
  explicit SystemServer(std::unique_ptr<HttpServer> http) : http_(std::move(http)) {}

  std::unique_ptr<HttpServer> http_;
};

}  // namespace switchyard
