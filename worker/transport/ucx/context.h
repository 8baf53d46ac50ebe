// The UCX objects of a transport: one ucp_context with two ucp_workers, one for receiving and one
// for sending. Both belong to the transport's thread.
//
// There are two workers because UCX merges endpoints that two workers create to each other: the
// n-th endpoint of one side shares a connection with the n-th of the other, even if they serve
// different links. Closing one link could then break another; a close during setup did break the
// peer's link. UCX never merges with a worker that creates no endpoint, so with a separate receiver
// each link has its own connection, which only its two processes can end.
//
// UCX closes a listening socket for good when accept(2) fails, as it does without free descriptors
// (uct/tcp/tcp_iface.c, UCX 1.13 and later). Then no new peer can connect, so a new receiver with
// ports of its own takes over, while the links of the former one go on.
//
// Settings are made with ucp_config_modify, not with environment variables. UCX itself reads UCX_*
// variables and ucx.conf before that. Every setting on which this transport relies is made here and
// so overrides them (see the table in context.cc). A variable that UCX cannot parse makes Create
// fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

#include "worker/transport/descriptor.h"
#include "worker/transport/ucx/address.h"

namespace switchyard {

// The error for a UCX call that failed with `status`; `what` describes the call. Reason TRANSPORT,
// or OUT_OF_MEMORY; kUnavailable unless a more specific code exists.
absl::Status UcxError(absl::string_view what, ucs_status_t status);

struct UcxContextOptions {
  std::string net_devices = "all";  // network devices for the tcp lane, comma-separated
  // UCX's log level in the whole process: "fatal", "error", "warn", "info" ... UCX logs to standard
  // output, where programs print their results, and every error that matters is also a Status.
  std::string log_level = "fatal";
};

class UcxContext {
 public:
  // Errors: kFailedPrecondition (TRANSPORT) if UCX has no tcp or refuses the settings.
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(const UcxContextOptions& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  [[nodiscard]] ucp_context_h context() const { return context_; }
  // The one that new links use.
  [[nodiscard]] ucp_worker_h receiver() const { return receivers_.back().worker; }
  // All that exist, the oldest first.
  template <typename Use>
  void ForEachReceiver(Use use) const {
    for (const Worker& each : receivers_) use(each.worker);
  }
  // Makes a new receiver the current one. Former ones stay until this object ends, because links
  // use them. Errors: kResourceExhausted (OUT_OF_MEMORY) without descriptors, or after
  // kReceiversMax; UcxError.
  absl::Status ReplaceReceiver();
  static constexpr std::size_t kReceiversMax = 16;
  [[nodiscard]] ucp_worker_h sender() const { return sender_.worker; }
  // The receiver's address as packed by UCX. A secret: never logged.
  [[nodiscard]] const std::string& address() const { return address_; }
  // The check that an address has to pass before the sender connects to it.
  [[nodiscard]] const UcxAddressCheck& address_check() const { return address_check_; }
  // The tcp ports that the current receiver and the sender listen on, in host byte order.
  [[nodiscard]] const std::vector<std::uint16_t>& receiver_ports() const { return receiver_ports_; }
  [[nodiscard]] const std::vector<std::uint16_t>& sender_ports() const { return sender_ports_; }
  // Descriptors that are readable when an armed worker has work: that of all receivers, which
  // ReplaceReceiver changes, and the sender's. Owned by UCX and this object.
  [[nodiscard]] int receiver_fd() const {
    return all_receivers_.valid() ? all_receivers_.get() : receivers_.back().event_fd;
  }
  [[nodiscard]] int sender_fd() const { return sender_.event_fd; }

 private:
  UcxContext() = default;
  // Creates all objects; the destructor frees those that exist after an error.
  absl::Status Init(const UcxContextOptions& options);

  // A ucp_worker and its descriptor.
  struct Worker {
    ucp_worker_h worker = nullptr;
    int event_fd = -1;
  };
  absl::Status MakeWorker(Worker* worker);
  // Makes a receiver with its address and ports.
  absl::Status AddReceiver();
  // Lets all_receivers_ be readable when any of them is.
  absl::Status WatchReceivers();
  static absl::StatusOr<std::string> AddressOf(const Worker& worker);

  ucp_context_h context_ = nullptr;
  std::vector<Worker> receivers_;
  Descriptor all_receivers_;  // an epoll of their descriptors, once there are several
  Worker sender_;
  std::string address_;
  std::vector<std::uint16_t> receiver_ports_;
  std::vector<std::uint16_t> sender_ports_;
  UcxAddressCheck address_check_;
};

}  // namespace switchyard
