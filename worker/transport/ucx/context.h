// One ucp_context with one ucp_worker: what a UCX transport stands on.
//
// Settings go in by ucp_config_modify, never by the environment. UCX reads UCX_* variables and
// ucx.conf itself before that; everything that changes what this transport relies on is set here
// and so wins over them (the table in context.cc). A variable that UCX cannot parse fails Create.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

namespace switchyard {

// `what` went wrong with `status`; kUnavailable or the nearest code, reason TRANSPORT.
absl::Status UcxError(absl::string_view what, ucs_status_t status);

struct UcxContextOptions {
  std::string net_devices = "all";  // that the tcp lane may use, comma separated
  // "fatal", "error", "warn", "info" ...: of UCX in the whole process. It logs to standard output,
  // where programs print their results, and all that matters comes back as a Status.
  std::string log_level = "fatal";
};

class UcxContext {
 public:
  // Errors: kFailedPrecondition (TRANSPORT) when UCX has no tcp or refuses the settings.
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(const UcxContextOptions& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  // Of the worker, as UCX packs it. A secret: never logged.
  [[nodiscard]] const std::string& address() const { return address_; }
  // Readable when the worker has something to do, once it is armed. Owned by UCX.
  [[nodiscard]] int event_fd() const { return event_fd_; }

 private:
  UcxContext() = default;
  absl::Status Init(const UcxContextOptions& options);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
};

}  // namespace switchyard
