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

// Has UCX's thread wait for no connection at `descriptor`. False if it has no handler of UCX.
bool TakeFromUcx(int descriptor) { return ucs_async_modify_handler(descriptor, 0) == UCS_OK; }

// The port that `descriptor` listens on; 0 if it is no listening tcp socket.
std::uint16_t ListensOn(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) return 0;
  sockaddr_storage address{};
  length = sizeof(address);
  if (listens == 0 ||
      ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
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

absl::Status NoDescriptor(absl::string_view what, int error) {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   absl::StrCat("transport ucx: ", what, " failed (", std::strerror(error),
                                "); raise the limit of open files (ulimit -n)"));
}

}  // namespace

absl::StatusOr<UcxAdmission> UcxAdmission::Create(std::span<const std::uint16_t> ports) {
  UcxAdmission made;
  made.waiting_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!made.waiting_.valid()) return NoDescriptor("making an epoll", errno);
  if (absl::Status added = made.Add(ports); !added.ok()) return added;
  return made;
}

absl::Status UcxAdmission::Add(std::span<const std::uint16_t> ports) {
  std::vector<Socket> found;
  Program nobody = ProgramFor({});
  for (const int descriptor : OwnDescriptors()) {
    const std::uint16_t port = ListensOn(descriptor);
    if (port == 0 || std::ranges::find(ports, port) == ports.end()) continue;
    if (!Attach(descriptor, &nobody)) return Refused(RefusedFilter(errno));
    TakeFromUcx(descriptor);
    if (absl::Status watched = Watch(descriptor); !watched.ok()) return watched;
    found.push_back({descriptor, port});
  }
  for (const std::uint16_t port : ports) {
    if (std::ranges::find(found, port, &Socket::port) == found.end()) {
      return Refused(absl::StrCat("no socket of this process listens on port ", port,
                                  "; check that /proc is mounted"));
    }
  }
  sockets_.insert(sockets_.end(), found.begin(), found.end());
  Apply(true);
  return absl::OkStatus();
}

absl::Status UcxAdmission::Watch(int descriptor) {
  epoll_event readable{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (::epoll_ctl(waiting_.get(), EPOLL_CTL_ADD, descriptor, &readable) == 0) {
    return absl::OkStatus();
  }
  return NoDescriptor("watching a port", errno);
}

UcxAdmission::Accepted UcxAdmission::Accept() {
  std::array<epoll_event, kAcceptMax> ready{};
  const int count = ::epoll_wait(waiting_.get(), ready.data(), kAcceptMax, 0);
  Accepted accepted = Accepted::kNone;
  for (int i = 0; i < count; ++i) {
    int descriptor = ready[static_cast<std::size_t>(i)].data.fd;
    // A socket that UCX has closed is still reported while a child process has it.
    if (ListensOn(descriptor) == 0) continue;
    const ucs_status_t status = ucs_async_dispatch_handlers(&descriptor, 1, UCS_EVENT_SET_EVREAD);
    if (status == UCS_ERR_NO_PROGRESS) return Accepted::kLater;
    accepted = Accepted::kSome;
  }
  return accepted;
}

bool UcxAdmission::Listens(std::span<const std::uint16_t> ports) const {
  return std::ranges::all_of(ports, [this](std::uint16_t port) {
    const auto at = std::ranges::find(sockets_, port, &Socket::port);
    return at != sockets_.end() && ListensOn(at->descriptor) == port;
  });
}

void UcxAdmission::ForgetClosed() {
  std::erase_if(sockets_, [](const Socket& each) {
    if (ListensOn(each.descriptor) == each.port) return false;
    // Another listening socket of UCX may have the number by now, with a handler of its own: that
    // one's events can be set, while a handler that was left behind watches nothing.
    if (!TakeFromUcx(each.descriptor)) ucs_async_remove_handler(each.descriptor, 1);
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
