#include "worker/transport/ucx/context.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <dlfcn.h>
#include <ucs/debug/debug.h>

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// UCX takes over SIGSEGV, SIGABRT, SIGHUP and others when libucs.so is loaded, before anything of
// this code runs. They belong to the process, most of all where an engine loads libswitchyard, so
// they go back as soon as this code is loaded. Not from Init: an engine may load and never open.
// Handlers of others stay, which is why each is looked at.
[[gnu::constructor]] void GiveSignalsBack() {
  Dl_info ucs{};
  if (::dladdr(reinterpret_cast<void*>(&ucs_debug_disable_signal), &ucs) == 0) return;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    Dl_info owner{};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_DFL ||
        action.sa_handler == SIG_IGN) {
      continue;
    }
    if (::dladdr(reinterpret_cast<void*>(action.sa_handler), &owner) != 0 &&
        owner.dli_fbase == ucs.dli_fbase) {
      ucs_debug_disable_signal(number);
    }
  }
}

struct Setting {
  const char* name;
  const char* value;
};

// ucp_config_modify expects names without the transport's prefix: the environment's TCP_CONN_NB is
// CONN_NB here.
constexpr std::array kSettings = {
    // The only lane that reports a peer's death. On one host, rows travel through memory that does
    // not belong to UCX (shared_ring.h).
    Setting{"TLS", "tcp"},
    // Always eager. A rendezvous receive in progress when a link closes can outlive the link (UCX
    // looks up the endpoint by order of creation, which may find another link's). It then keeps the
    // ring from being freed and aborts the process in ucp_worker_destroy.
    Setting{"RNDV_THRESH", "inf"},
    // One lane, because the pieces of a frame must arrive in order.
    Setting{"MAX_EAGER_RAILS", "1"},
    // A piece with its headers must fit into one "short" message (see ucx/outbox.h), so the segment
    // is larger than kPieceBytes.
    Setting{"TX_SEG_SIZE", "128K"},
    Setting{"RX_SEG_SIZE", "128K"},
    Setting{"BCOPY_THRESH", "auto"},
    Setting{"ZCOPY_THRESH", "auto"},
    // Otherwise connect(2) to an unreachable host blocks the data thread for seconds.
    Setting{"CONN_NB", "y"},
    Setting{"NODELAY", "y"},
    Setting{"KEEPALIVE_INTERVAL", "20s"},
    Setting{"PROTO_ENABLE", "n"},
    Setting{"UNIFIED_MODE", "n"},
    Setting{"ADDRESS_DEBUG_INFO", "n"},
    // The only layout that UcxAddressCheck reads.
    Setting{"ADDRESS_VERSION", "v1"},
    // All interfaces are active from the start. Otherwise the first endpoint activates its own, and
    // UCX ends the process where that needs a descriptor and there is none (ucp_worker.c).
    Setting{"ADAPTIVE_PROGRESS", "n"},
    Setting{"USE_MT_MUTEX", "n"},
};

// More descriptor numbers than UCX gives up for lack of descriptors between two restarts.
constexpr std::size_t kNumbersMax = 256;

absl::Status Modify(ucp_config_t* config, const char* name, const char* value) {
  const ucs_status_t status = ucp_config_modify(config, name, value);
  return status == UCS_OK ? absl::OkStatus()
                          : UcxError(absl::StrCat("setting ", name, "=", value), status);
}

absl::Status ModifyAll(ucp_config_t* config, const UcxContextOptions& options) {
  for (const Setting& setting : kSettings) {
    SY_RETURN_IF_ERROR(Modify(config, setting.name, setting.value));
  }
  if (!options.log_level.empty()) {
    SY_RETURN_IF_ERROR(Modify(config, "LOG_LEVEL", options.log_level.c_str()));
  }
  const std::string ports = absl::StrCat(options.ports.first, "-", options.ports.last);
  SY_RETURN_IF_ERROR(Modify(config, "PORT_RANGE", ports.c_str()));
  return Modify(config, "NET_DEVICES", options.net_devices.c_str());
}

bool IsFree(std::uint16_t port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // as UCX does
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno != EADDRINUSE;
}

// UCX tries ports of the range for ever while all are taken (uct_tcp_iface_listener_init,
// UCX 1.13). Another process may take the last one after this look: then it still does, until one
// is free.
absl::Status CheckPorts(const PortRange& ports) {
  if (ports.first == 0) return absl::OkStatus();
  for (std::uint32_t port = ports.first; port <= ports.last; ++port) {
    if (IsFree(static_cast<std::uint16_t>(port))) return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kUnavailable, Reason::kAddressInUse,
                   absl::StrFormat("UCX: all ports from %d to %d are in use; give a wider range "
                                   "(--data-ports): a worker or client takes four to ten for each "
                                   "of its network devices",
                                   ports.first, ports.last));
}

}  // namespace

absl::Status UcxError(absl::string_view what, ucs_status_t status) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  if (status == UCS_ERR_NO_MEMORY) code = absl::StatusCode::kResourceExhausted;
  if (status == UCS_ERR_INVALID_PARAM || status == UCS_ERR_NO_DEVICE) {
    code = absl::StatusCode::kFailedPrecondition;
  }
  const Reason reason =
      code == absl::StatusCode::kResourceExhausted ? Reason::kOutOfMemory : Reason::kTransport;
  return MakeError(code, reason, absl::StrCat("UCX: ", what, ": ", ucs_status_string(status)));
}

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(const UcxContextOptions& options) {
  std::unique_ptr<UcxContext> made(new UcxContext);
  SY_RETURN_IF_ERROR(made->Init(options));
  return made;
}

absl::Status UcxContext::Init(const UcxContextOptions& options) {
  ports_ = options.ports;
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) {
    return UcxError("cannot read its configuration (unset UCX_* variables)", status);
  }
  if (absl::Status modified = ModifyAll(config, options); !modified.ok()) {
    ucp_config_release(config);
    return modified;
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  // No RMA: it would let a peer write to any address of this process.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return UcxError("cannot create a context (check that ucx with tcp is installed)", status);
  }
  context_.reset(context);

  SY_ASSIGN_OR_RETURN(Worker receiver, MakeWorker());
  receivers_.push_back(std::move(receiver));
  SY_ASSIGN_OR_RETURN(sender_, MakeWorker());
  SY_ASSIGN_OR_RETURN(address_check_, UcxAddressCheck::Create(address(), sender_.address));
  return absl::OkStatus();
}

absl::Status UcxContext::ReplaceReceiver(const ReceiverSetUp& set_up) {
  // Each keeps descriptors and memory for links that may have ended long ago.
  if (receivers_.size() >= kReceiversMax) {
    return WithScope(
        MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                  absl::StrCat("UCX: its port was lost ", kReceiversMax,
                               " times for lack of descriptors; raise the limit of open files "
                               "(ulimit -n) and restart this process")),
        FailureScope::kWorker);
  }
  SY_ASSIGN_OR_RETURN(Worker made, MakeWorker());
  Descriptor epoll;
  if (!all_receivers_.valid()) {
    epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
    for (const Worker& each : receivers_) SY_RETURN_IF_ERROR(Watch(epoll, each));
  }
  // After an error below, the epoll forgets the new receiver when its descriptor closes.
  SY_RETURN_IF_ERROR(Watch(epoll.valid() ? epoll : all_receivers_, made));
  SY_RETURN_IF_ERROR(set_up(made.handle.get(), made.listeners));

  if (epoll.valid()) all_receivers_ = std::move(epoll);
  receivers_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::Status UcxContext::Watch(const Descriptor& epoll, const Worker& worker) {
  epoll_event readable{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, worker.event_fd, &readable) == 0) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   absl::StrCat("UCX: watching a worker failed with errno ", errno,
                                "; raise the limit of open files (ulimit -n)"));
}

absl::StatusOr<UcxContext::Worker> UcxContext::MakeWorker() const {
  SY_RETURN_IF_ERROR(CheckPorts(ports_));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // SERIALIZED: several threads may call UCX, but the owner's mutex keeps them apart.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h handle = nullptr;
  ucs_status_t status = ucp_worker_create(context(), &params, &handle);
  // When UCX has closed a port because accept(2) failed, its handler stays under the number of the
  // descriptor until UcxAdmission::ForgetClosed, and no other descriptor of UCX may have that
  // number. So numbers that another transport of this process has lost without noticing it so far
  // are taken out of its way, the lowest first as the kernel gives them out, until it gets others.
  std::vector<Descriptor> taken;
  while (status == UCS_ERR_ALREADY_EXISTS && taken.size() < kNumbersMax) {
    taken.emplace_back(::eventfd(0, EFD_CLOEXEC));
    status = ucp_worker_create(context(), &params, &handle);
  }
  if (status != UCS_OK) return UcxError("cannot create a worker", status);
  Worker made;
  made.handle.reset(handle);
  status = ucp_worker_get_efd(handle, &made.event_fd);
  if (status != UCS_OK) return UcxError("cannot get its event descriptor", status);

  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  status = ucp_worker_get_address(handle, &address, &length);
  if (status != UCS_OK) return UcxError("cannot pack a worker's address", status);
  made.address.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(handle, address);
  SY_ASSIGN_OR_RETURN(made.listeners, UcxAddressCheck::ListenersOf(made.address));
  return made;
}

}  // namespace switchyard
