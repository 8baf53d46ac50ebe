// One ucp_context with two ucp_workers, one that receives and one that sends: what a UCX transport
// stands on. Both belong to the transport's thread.
//
// Two, because UCX joins what two workers send each other into one connection, the n-th endpoint of
// one side with the n-th of the other, whichever links they serve. Closing one link could then
// break another, and a close during set-up did break the peer's. A worker that never makes an
// endpoint is never joined: each link has a connection of its own that only its two processes can
// end.
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
  [[nodiscard]] ucp_worker_h receiver() const { return receiver_.worker; }
  [[nodiscard]] ucp_worker_h sender() const { return sender_.worker; }
  // Of the receiver, as UCX packs it. A secret: never logged.
  [[nodiscard]] const std::string& address() const { return address_; }
  // Readable when a worker has something to do, once it is armed. Owned by UCX.
  [[nodiscard]] int receiver_fd() const { return receiver_.event_fd; }
  [[nodiscard]] int sender_fd() const { return sender_.event_fd; }

 private:
  UcxContext() = default;
  absl::Status Init(const UcxContextOptions& options);

  struct Worker {
    ucp_worker_h worker = nullptr;
    int event_fd = -1;
  };
  absl::Status MakeWorker(Worker* worker);

  ucp_context_h context_ = nullptr;
  Worker receiver_;
  Worker sender_;
  std::string address_;
};

}  // namespace switchyard
