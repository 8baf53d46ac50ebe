#include "worker/transport/ucx/address.h"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <sys/socket.h>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include <ucp/api/ucp.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Version 1 (0 in the low four bits), and the only flag: the worker's id follows.
constexpr std::uint8_t kHeader = 0x20;
// First byte of a device: the index of its memory domain, two flags that UCX ignores, and:
constexpr std::uint8_t kDeviceIsEmpty = 0x80;
// Second byte of a device: the length of its address, and:
constexpr std::uint8_t kDeviceIsLast = 0x80;
constexpr std::uint8_t kDeviceHasPaths = 0x40;
constexpr std::uint8_t kDeviceHasSystemDevice = 0x20;
constexpr std::uint8_t kDeviceLengthMask = 0x1f;
// Last byte before an interface's address: its length, and:
constexpr std::uint8_t kInterfaceIsLast = 0x80;
constexpr std::uint8_t kInterfaceHasEndpoints = 0x40;
// Low bits of the capabilities.
constexpr std::uint32_t kPriorityBits = 8;
// A device's address: flags, family, and an IP address, or the host's id and network namespace.
constexpr std::size_t kDevicePrefixBytes = 2;
constexpr char kDeviceIsLoopback = 1;
constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kIpv6Bytes = 16;
constexpr std::size_t kHostBytes = 16;
// UCX takes 128; a host with as many networks can name some of them in UCX_NET_DEVICES.
constexpr std::size_t kInterfacesMax = 64;
// UCX multiplies and compares these, so NaN, infinity and zero must not reach it.
constexpr float kBandwidthMax = 1e15F;
constexpr float kSecondsMax = 10;

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                   absl::StrCat("transport ucx: the peer's address is not usable: ", what,
                                "; check that both sides run the same release with the same UCX"));
}

bool IsWithin(float value, float least, float most) { return value >= least && value <= most; }

// A host that a connection can be made to; UCX passes anything on to connect(2).
bool IsUnicast(absl::string_view ip) {
  const auto first = static_cast<std::uint8_t>(ip[0]);
  if (ip.size() == kIpv4Bytes) return first != 0 && first < 0xe0;
  return first != 0xff && ip.find_first_not_of('\0') != absl::string_view::npos;
}

absl::Status CheckDevice(absl::string_view device) {
  if (device.size() < kDevicePrefixBytes) return Bad("an interface has no network address");
  const absl::string_view rest = device.substr(kDevicePrefixBytes);
  const int family = static_cast<std::uint8_t>(device[1]);
  if (family != AF_INET && family != AF_INET6) return Bad("an address family is unknown");
  if (device[0] == kDeviceIsLoopback) {
    return rest.size() == kHostBytes ? absl::OkStatus() : Bad("a host id has another length");
  }
  if (device[0] != 0) return Bad("an interface has unknown flags");
  if (rest.size() != (family == AF_INET ? kIpv4Bytes : kIpv6Bytes)) {
    return Bad("an IP address has another length");
  }
  return IsUnicast(rest) ? absl::OkStatus() : Bad("an IP address is not one host's");
}

template <typename T>
void Append(std::string* out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  out->append(bytes.data(), bytes.size());
}

}  // namespace

std::string UcxVersion() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return absl::StrCat(major, ".", minor, ".", release);
}

// Takes from the front of an address; false, and nothing taken, where it is too short.
class UcxAddressCheck::Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  bool Take(T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() < sizeof(T)) return false;
    std::memcpy(out, bytes_.data(), sizeof(T));  // not aligned
    bytes_.remove_prefix(sizeof(T));
    return true;
  }
  bool Take(std::size_t length, std::string* out) {
    if (bytes_.size() < length) return false;
    out->assign(bytes_.data(), length);
    bytes_.remove_prefix(length);
    return true;
  }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
};

absl::Status UcxAddressCheck::ParseInterface(Reader* at, Interface* out, bool* last) {
  const absl::Status cut = Bad("it is cut short");
  std::uint8_t device = 0;
  std::uint8_t system_device = 0;
  std::uint8_t interface = 0;
  if (!at->Take(&out->memory_domain) || !at->Take(&device)) return cut;
  if ((out->memory_domain & kDeviceIsEmpty) != 0) return Bad("a device has no interface");
  if ((device & kDeviceHasPaths) != 0) return Bad("an interface has several paths");
  // UCX packs it where it knows a GPU; a sender has no use for it.
  if ((device & kDeviceHasSystemDevice) != 0 && !at->Take(&system_device)) return cut;
  *last = (device & kDeviceIsLast) != 0;
  if (!at->Take(device & kDeviceLengthMask, &out->device) || !at->Take(&out->transport) ||
      !at->Take(&out->overhead) || !at->Take(&out->bandwidth) || !at->Take(&out->latency) ||
      !at->Take(&out->capabilities) || !at->Take(&interface)) {
    return cut;
  }
  // The rest of the byte is the length: that of a port, without addresses of endpoints, which only
  // UCX's own messages carry.
  if ((interface & kInterfaceHasEndpoints) != 0) return Bad("it has addresses of endpoints");
  if (interface != (kInterfaceIsLast | sizeof(out->port))) {
    return Bad("a device has not exactly one interface with a port");
  }
  return at->Take(&out->port) ? CheckDevice(out->device) : cut;
}

absl::StatusOr<UcxAddressCheck::Address> UcxAddressCheck::Parse(absl::string_view packed) {
  Reader at(packed);
  Address address;
  std::uint8_t header = 0;
  if (!at.Take(&header)) return Bad("it is empty");
  if (header != kHeader) return Bad("its version or flags are unknown");
  if (!at.Take(&address.worker)) return Bad("it is cut short");
  for (bool last = false; !last;) {
    if (address.interfaces.size() == kInterfacesMax) return Bad("it has too many interfaces");
    SY_RETURN_IF_ERROR(ParseInterface(&at, &address.interfaces.emplace_back(), &last));
  }
  if (!at.empty()) return Bad("bytes follow its end");
  return address;
}

absl::StatusOr<std::vector<UcxListener>> UcxAddressCheck::ListenersOf(absl::string_view packed) {
  SY_ASSIGN_OR_RETURN(const Address address, Parse(packed));
  std::vector<UcxListener> listeners;
  for (const Interface& each : address.interfaces) {
    UcxListener& listener = listeners.emplace_back();
    listener.port = ntohs(each.port);
    if (each.device[0] != kDeviceIsLoopback) {
      listener.host = each.device.substr(kDevicePrefixBytes);
    } else if (static_cast<std::uint8_t>(each.device[1]) == AF_INET) {
      listener.host.assign("\x7f\0\0\1", kIpv4Bytes);
    } else {
      listener.host = std::string(kIpv6Bytes - 1, '\0') + '\1';
    }
  }
  return listeners;
}

absl::StatusOr<std::vector<std::string>> UcxAddressCheck::HostsOf(absl::string_view packed) {
  SY_ASSIGN_OR_RETURN(std::vector<UcxListener> listeners, ListenersOf(packed));
  std::vector<std::string> hosts;
  for (UcxListener& each : listeners) hosts.push_back(std::move(each.host));
  return hosts;
}

absl::StatusOr<UcxAddressCheck> UcxAddressCheck::Create(absl::string_view receiver,
                                                        absl::string_view sender) {
  absl::StatusOr<Address> own = Parse(receiver);
  absl::StatusOr<Address> from = Parse(sender);
  if (!own.ok() || !from.ok()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrCat("UCX ", UcxVersion(),
                                  " packs addresses in a layout that this release does not know (",
                                  (own.ok() ? from : own).status().message(),
                                  "); install the UCX version in docs/DEPENDENCIES.md"));
  }
  UcxAddressCheck check;
  check.pattern_ = std::move(own->interfaces.front());
  check.sender_ = *std::move(from);
  return check;
}

absl::Status UcxAddressCheck::CheckInterface(const Interface& peer) const {
  if (peer.transport != pattern_.transport) return Bad("an interface is not of transport tcp");
  if (peer.capabilities >> kPriorityBits != pattern_.capabilities >> kPriorityBits) {
    return Bad("an interface of tcp has other capabilities than ours");
  }
  // In this form, because a comparison with NaN is false.
  if (!IsWithin(peer.bandwidth, 1, kBandwidthMax) || !IsWithin(peer.latency, 0, kSecondsMax) ||
      !IsWithin(peer.overhead, 0, kSecondsMax)) {
    return Bad("an interface has an impossible speed");
  }
  if (peer.port == 0) return Bad("an interface has no port");
  // An endpoint of the sender to itself would take both ends of one connection.
  for (const Interface& own : sender_.interfaces) {
    if (own.device == peer.device && own.port == peer.port) return Bad("it is this process's own");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxAddressCheck::Rewrite(absl::string_view peer) const {
  SY_ASSIGN_OR_RETURN(const Address address, Parse(peer));
  if (address.worker == sender_.worker) return Bad("it is this process's own");
  std::string out;
  Append(&out, kHeader);
  Append(&out, address.worker);
  for (const Interface& each : address.interfaces) {
    SY_RETURN_IF_ERROR(CheckInterface(each));
    Append(&out, pattern_.memory_domain);
    const bool last = &each == &address.interfaces.back();
    Append(&out, static_cast<std::uint8_t>(each.device.size() | (last ? kDeviceIsLast : 0U)));
    out += each.device;
    Append(&out, pattern_.transport);
    Append(&out, each.overhead);
    Append(&out, each.bandwidth);
    Append(&out, each.latency);
    Append(&out, each.capabilities);
    Append(&out, static_cast<std::uint8_t>(kInterfaceIsLast | sizeof(each.port)));
    Append(&out, each.port);
  }
  return out;
}

}  // namespace switchyard
