#include "worker/transport/ucx/admission.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include <linux/filter.h>
#include <ucs/async/async_fwd.h>
#include <ucs/sys/event_set.h>

#include "core/base/error.h"

// Calls the handlers of descriptors in this thread. UCS_ERR_NO_PROGRESS: another one has locked the
// ucp_worker, whose next progress does it. Of libucs: async_int.h of UCX 1.13 and later, which the
// packages lack.
extern "C" ucs_status_t ucs_async_dispatch_handlers(int* handler_ids, std::size_t count,
                                                    ucs_event_set_types_t events);

namespace switchyard {
namespace {

constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kIpv6Words = 4;
// Offsets into the IP header of the sender's address. A filter of a tcp socket begins at the tcp
// header, and SKF_NET_OFF leads back to the IP header.
constexpr auto kNetwork = static_cast<std::uint32_t>(SKF_NET_OFF);
constexpr std::uint32_t kVersionAt = kNetwork;
constexpr std::uint32_t kIpv4SenderAt = kNetwork + 12U;
constexpr std::uint32_t kIpv6SenderAt = kNetwork + 8U;
constexpr std::uint32_t kAccept = 0xffffffff;  // so many bytes of the packet
constexpr std::uint32_t kDiscard = 0;
// Sockets that Accept looks at in one call; there are at most six for each network device.
constexpr std::size_t kAcceptMax = 32;
// A socket has 20 KiB for such things (net.core.optmem_max of older kernels), a statement 8 bytes.
constexpr std::size_t kStatementsMax = 2'000;

using Program = std::vector<sock_filter>;

void Return(Program* program, std::uint32_t verdict) {
  program->push_back(BPF_STMT(BPF_RET | BPF_K, verdict));
}

void Load(Program* program, std::uint16_t size, std::uint32_t at) {
  const std::uint16_t code = BPF_LD | BPF_ABS | size;
  program->push_back(BPF_STMT(code, at));
}

// Goes on with the next statement if the accumulator is `value`; else leaves out `otherwise` ones.
void IfEqual(Program* program, std::uint32_t value, std::uint8_t otherwise) {
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise));
}

std::uint32_t WordOf(const std::string& host, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, host.data() + index * sizeof(word), sizeof(word));
  return ntohl(word);
}

// Accepts packets that come from `hosts`. Of a packet that is neither IPv4 nor IPv6 it accepts
// none.
Program ProgramFor(std::span<const std::string> hosts) {
  Program ipv6;
  Program ipv4;
  Load(&ipv4, BPF_W, kIpv4SenderAt);
  for (const std::string& host : hosts) {
    if (host.size() == kIpv4Bytes) {
      IfEqual(&ipv4, WordOf(host, 0), 1);
      Return(&ipv4, kAccept);
      continue;
    }
    for (std::size_t i = 0; i < kIpv6Words; ++i) {
      Load(&ipv6, BPF_W, kIpv6SenderAt + static_cast<std::uint32_t>(i * sizeof(std::uint32_t)));
      // From here to behind this host's Return: the rest of its words, two statements for each.
      IfEqual(&ipv6, WordOf(host, i), static_cast<std::uint8_t>(2 * (kIpv6Words - 1 - i) + 1));
    }
    Return(&ipv6, kAccept);
  }
  Return(&ipv6, kDiscard);
  Return(&ipv4, kDiscard);

  Program program;
  Load(&program, BPF_B, kVersionAt);
  program.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4));
  IfEqual(&program, 4, 1);
  // An unconditional jump, because a condition leads over 255 statements at most.
  program.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(ipv6.size())));
  program.insert(program.end(), ipv6.begin(), ipv6.end());
  program.insert(program.end(), ipv4.begin(), ipv4.end());
  return program;
}

// False if the kernel refuses; errno says why.
bool Attach(int socket, Program* program) {
  const sock_fprog filter{.len = static_cast<unsigned short>(program->size()),
                          .filter = program->data()};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

void Detach(int socket) {
  const int unused = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

// Has UCX's thread wait for no connection at `descriptor`. UCS_ERR_NO_ELEM: it has no handler of
// UCX.
ucs_status_t TakeFromUcx(int descriptor) { return ucs_async_modify_handler(descriptor, 0); }

// Where `descriptor` listens; port 0 if it is no listening tcp socket.
UcxListener ListenerOf(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  sockaddr_storage address{};
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return {};
  }
  length = sizeof(address);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  const auto listener = [](const auto& ip, std::uint16_t port) {
    return UcxListener{.host = std::string(reinterpret_cast<const char*>(&ip), sizeof(ip)),
                       .port = ntohs(port)};
  };
  if (address.ss_family == AF_INET) {
    const auto& of = reinterpret_cast<const sockaddr_in&>(address);
    return listener(of.sin_addr, of.sin_port);
  }
  if (address.ss_family == AF_INET6) {
    const auto& of = reinterpret_cast<const sockaddr_in6&>(address);
    return listener(of.sin6_addr, of.sin6_port);
  }
  return {};
}

std::vector<int> OwnDescriptors() {
  std::vector<int> found;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    int descriptor = -1;
    if (absl::SimpleAtoi(entry.path().filename().string(), &descriptor)) {
      found.push_back(descriptor);
    }
  }
  return found;
}

// Some kernels let only holders of NET_ADMIN attach what all may attach elsewhere.
std::string RefusedFilter(int error) {
  const char* next =
      error == EPERM ? "; give this process the capability NET_ADMIN, which this kernel asks for"
                     : "";
  return absl::StrCat("the kernel refuses a socket filter (", std::strerror(error), ")", next);
}

absl::Status Refused(absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                   absl::StrCat("transport ucx: cannot close UCX's ports to strangers: ", what));
}

absl::Status CannotWatch(int error) {
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
      absl::StrCat("transport ucx: cannot wait for connections (", std::strerror(error),
                   "); raise the limit of open files (ulimit -n) or, of a full system, "
                   "fs.epoll.max_user_watches"));
}

}  // namespace

bool UcxAdmission::Socket::is_open() const { return ListenerOf(descriptor) == listener; }

absl::StatusOr<UcxAdmission> UcxAdmission::Create(std::span<const UcxListener> listeners) {
  UcxAdmission made;
  made.waiting_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!made.waiting_.valid()) return CannotWatch(errno);
  if (absl::Status added = made.Add(listeners); !added.ok()) return added;
  return made;
}

absl::Status UcxAdmission::Add(std::span<const UcxListener> listeners) {
  std::vector<Socket> found;
  Program nobody = ProgramFor({});
  for (const int descriptor : OwnDescriptors()) {
    const UcxListener listener = ListenerOf(descriptor);
    if (std::ranges::find(listeners, listener) == listeners.end()) continue;
    const ucs_status_t taken = TakeFromUcx(descriptor);
    if (taken != UCS_OK && taken != UCS_ERR_NO_ELEM) {
      return Refused(
          absl::StrCat("UCX goes on waiting for connections (", ucs_status_string(taken), ")"));
    }
    if (!Attach(descriptor, &nobody)) return Refused(RefusedFilter(errno));
    if (!Watch(descriptor, false)) return CannotWatch(errno);
    found.push_back({descriptor, listener});
  }
  for (const UcxListener& listener : listeners) {
    if (std::ranges::find(found, listener, &Socket::listener) == found.end()) {
      return Refused(absl::StrCat("no socket of this process listens on port ", listener.port,
                                  "; check that /proc is mounted"));
    }
  }
  sockets_.insert(sockets_.end(), found.begin(), found.end());
  Apply(true);
  return absl::OkStatus();
}

// An event is told once and asked for again after each Accept. One that lasts could not be got rid
// of where UCX has closed the socket and a child process still has it.
bool UcxAdmission::Watch(int descriptor, bool again) const {
  epoll_event readable{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = descriptor}};
  return ::epoll_ctl(waiting_.get(), again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor,
                     &readable) == 0;
}

UcxAdmission::Accepted UcxAdmission::Accept() {
  std::array<epoll_event, kAcceptMax> ready{};
  const int count = ::epoll_wait(waiting_.get(), ready.data(), kAcceptMax, 0);
  Accepted accepted = Accepted::kNone;
  for (int i = 0; i < count; ++i) {
    int descriptor = ready[static_cast<std::size_t>(i)].data.fd;
    const auto socket = std::ranges::find(sockets_, descriptor, &Socket::descriptor);
    if (socket == sockets_.end() || !socket->is_open()) continue;
    if (accepted != Accepted::kLater) {
      const ucs_status_t status = ucs_async_dispatch_handlers(&descriptor, 1, UCS_EVENT_SET_EVREAD);
      accepted = status == UCS_ERR_NO_PROGRESS ? Accepted::kLater : Accepted::kSome;
    }
    // Where a call has been put off, what waits at the other sockets is told again.
    if (socket->is_open()) (void)Watch(descriptor, true);
  }
  return accepted;
}

bool UcxAdmission::Listens(std::span<const UcxListener> listeners) const {
  return std::ranges::all_of(listeners, [this](const UcxListener& listener) {
    const auto at = std::ranges::find(sockets_, listener, &Socket::listener);
    return at != sockets_.end() && at->is_open();
  });
}

void UcxAdmission::ForgetClosed() {
  std::erase_if(sockets_, [](const Socket& each) {
    if (each.is_open()) return false;
    // Another listening socket of UCX may have the number by now, with a handler of its own: that
    // one's events can be set, while a handler that was left behind watches nothing.
    if (TakeFromUcx(each.descriptor) != UCS_OK) ucs_async_remove_handler(each.descriptor, 1);
    return true;
  });
}

void UcxAdmission::Admit(AttachmentId link, std::span<const std::string> hosts, TimePoint until) {
  for (const std::string& host : hosts) {
    admitted_.push_back({.link = link, .host = host, .until = until});
  }
  Apply(false);
}

void UcxAdmission::Withdraw(AttachmentId link) {
  if (std::erase_if(admitted_, [link](const Admitted& each) { return each.link == link; }) > 0) {
    Apply(false);
  }
}

void UcxAdmission::Expire(TimePoint now) {
  // Called in each poll while a link is set up, so it makes no list unless something has ended.
  if (std::erase_if(admitted_, [now](const Admitted& each) { return each.until <= now; }) > 0) {
    Apply(false);
  }
}

void UcxAdmission::Apply(bool always) {
  std::vector<std::string> hosts;
  for (const Admitted& each : admitted_) hosts.push_back(each.host);
  std::ranges::sort(hosts);
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  if (!always && hosts == hosts_) return;
  hosts_ = std::move(hosts);
  Program program = ProgramFor(hosts_);
  // More hosts than a filter takes: rather let strangers in than refuse a peer.
  const bool anyone = program.size() > kStatementsMax;
  // A filter on what has taken the number of a closed socket would cut off a connection.
  ForgetClosed();
  for (const Socket& each : sockets_) {
    if (anyone || !Attach(each.descriptor, &program)) Detach(each.descriptor);
  }
}

}  // namespace switchyard
