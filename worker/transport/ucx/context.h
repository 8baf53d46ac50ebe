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
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <ucp/api/ucp.h>

#include "core/base/port_range.h"
#include "core/base/unique_handle.h"
#include "worker/transport/descriptor.h"
#include "worker/transport/ucx/address.h"

namespace switchyard {

// The error for a UCX call that failed with `status`; `what` describes the call. Reason TRANSPORT,
// or OUT_OF_MEMORY; kUnavailable unless a more specific code exists.
absl::Status UcxError(absl::string_view what, ucs_status_t status);

struct UcxContextOptions {
  std::string net_devices = "all";  // network devices for the tcp lane, comma-separated
  PortRange ports{};                // to listen on; a transport takes two for each device
  // UCX's log level in the whole process: "fatal", "error", "warn", "info" ... UCX logs to standard
  // output, where programs print their results, and every error that matters is also a Status.
  // Empty: as it is, which WriteUcxLog may have set.
  std::string log_level = "fatal";
};

class UcxContext {
 public:
  // Errors: kFailedPrecondition (TRANSPORT) if UCX has no tcp or refuses the settings; kUnavailable
  // (ADDRESS_IN_USE) if none of the ports to choose from is free.
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(const UcxContextOptions& options);
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  [[nodiscard]] ucp_context_h context() const { return context_.get(); }
  // The one that new links use.
  [[nodiscard]] ucp_worker_h receiver() const { return receivers_.back().handle.get(); }
  // All that exist, the oldest first.
  template <typename Use>
  void ForEachReceiver(Use use) const {
    for (const Worker& each : receivers_) use(each.handle.get());
  }
  // Prepares a receiver before anybody learns its address. `ports`: those that it listens on.
  using ReceiverSetUp =
      std::function<absl::Status(ucp_worker_h receiver, std::span<const UcxListener> listeners)>;
  // Makes a new receiver the current one once `set_up` has succeeded; after an error the former one
  // still is, and nothing of the new one is left. Former ones stay until this object ends, because
  // links use them. Errors: kResourceExhausted (OUT_OF_MEMORY) without descriptors, or after
  // kReceiversMax, then with failure scope `worker`; UcxError; those of set_up.
  absl::Status ReplaceReceiver(const ReceiverSetUp& set_up);
  static constexpr std::size_t kReceiversMax = 16;
  [[nodiscard]] ucp_worker_h sender() const { return sender_.handle.get(); }
  // The receiver's address as packed by UCX. A secret: never logged.
  [[nodiscard]] const std::string& address() const { return receivers_.back().address; }
  // The check that an address has to pass before the sender connects to it.
  [[nodiscard]] const UcxAddressCheck& address_check() const { return address_check_; }
  // The current receiver and the sender listen there.
  [[nodiscard]] const std::vector<UcxListener>& receiver_listeners() const {
    return receivers_.back().listeners;
  }
  [[nodiscard]] const std::vector<UcxListener>& sender_listeners() const {
    return sender_.listeners;
  }
  // Descriptors that are readable when an armed worker has work: that of all receivers, which
  // ReplaceReceiver changes, and the sender's. Owned by UCX and this object.
  [[nodiscard]] int receiver_fd() const {
    return all_receivers_.valid() ? all_receivers_.get() : receivers_.back().event_fd;
  }
  [[nodiscard]] int sender_fd() const { return sender_.event_fd; }

 private:
  struct ContextTraits {
    using Handle = ucp_context_h;
    static Handle Invalid() { return nullptr; }
    static void Close(Handle context) { ucp_cleanup(context); }
  };
  struct WorkerTraits {
    using Handle = ucp_worker_h;
    static Handle Invalid() { return nullptr; }
    static void Close(Handle worker) { ucp_worker_destroy(worker); }
  };
  // A ucp_worker with what others need of it.
  struct Worker {
    UniqueHandle<WorkerTraits> handle;
    int event_fd = -1;  // belongs to the handle
    std::string address;
    std::vector<UcxListener> listeners;
  };

  UcxContext() = default;
  absl::Status Init(const UcxContextOptions& options);
  [[nodiscard]] absl::StatusOr<Worker> MakeWorker() const;
  // Lets `epoll` be readable when `worker` has work.
  static absl::Status Watch(const Descriptor& epoll, const Worker& worker);

  PortRange ports_;
  UniqueHandle<ContextTraits> context_;  // destroyed after its workers
  std::vector<Worker> receivers_;
  Descriptor all_receivers_;  // an epoll of their descriptors, once there are several
  Worker sender_;
  UcxAddressCheck address_check_;
};

}  // namespace switchyard
