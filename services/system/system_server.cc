#include "services/system/system_server.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "services/system/metrics_text.h"

namespace switchyard {
namespace {

HttpAnswer Answer(const std::string& missing) {
  if (missing.empty()) return {.code = 200, .body = "ok\n"};
  return {.code = 503, .body = absl::StrCat(missing, "\n")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SystemServer>> SystemServer::Start(
    const HttpServerOptions& options, HealthMonitor* health, std::function<std::string()> metrics,
    std::vector<HttpPage> more) {
  std::vector<HttpPage> pages{
      {.path = "/livez",
       .make = [health](const HttpAsk&) { return Answer(health->Look().not_live); }},
      {.path = "/readyz",
       .make = [health](const HttpAsk&) { return Answer(health->Look().not_ready); }},
      {.path = "/metrics",
       .make =
           [metrics = std::move(metrics)](const HttpAsk&) {
             return HttpAnswer{.body = metrics(), .content_type = kMetricsContentType};
           },
       .work = HttpWork::kSlow}};
  for (HttpPage& page : more) pages.push_back(std::move(page));
  SY_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> http,
                      HttpServer::Start(options, std::move(pages)));
  return std::unique_ptr<SystemServer>(new SystemServer(std::move(http)));
}

}  // namespace switchyard
