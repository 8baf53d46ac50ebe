// Checks a peer's ucp_worker address before UCX reads it.
//
// ucp_address_unpack has no length and believes every byte: a wrong length leads it out of the
// buffer, an unknown version or a score that is NaN ends the process, and each new combination of
// memory domain and system device takes one of the 64 endpoint configurations that a ucp_worker
// ever has. So UCX never gets the peer's bytes. Rewrite parses them, refuses whatever this
// process's own address does not have either, and packs a new address in which only these are the
// peer's: the id of its worker and, for each interface, IP address, port and expected speed.
//
// The layout is version 1 of src/ucp/wireup/address.c, written for UCX 1.13 and interfaces of
// src/uct/tcp. Another version of UCX that packs its own address differently makes Create fail.
// Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// The version of the UCX library in this process, "1.13.1".
std::string UcxVersion();

// A socket that UCX listens on. Its port alone says too little: UCX binds one to each interface's
// address, and the numbers may be alike.
struct UcxListener {
  std::string host;        // IP address in network byte order, 4 or 16 bytes
  std::uint16_t port = 0;  // in host byte order
  friend bool operator==(const UcxListener&, const UcxListener&) = default;
};

class UcxAddressCheck {
 public:
  // Both are addresses as this process's UCX packed them: `receiver` gives the pattern, `sender` is
  // the worker that creates endpoints, which must not connect to itself. Errors:
  // kFailedPrecondition (TRANSPORT) if UCX packs them in another layout.
  static absl::StatusOr<UcxAddressCheck> Create(absl::string_view receiver,
                                                absl::string_view sender);

  // The address for ucp_ep_create. Errors: kFailedPrecondition (TRANSPORT), which says what is
  // wrong and never quotes the address, which is a secret.
  [[nodiscard]] absl::StatusOr<std::string> Rewrite(absl::string_view peer) const;

  // The IP addresses of an address, in network byte order, 4 or 16 bytes each. Errors: those of
  // Rewrite.
  static absl::StatusOr<std::vector<std::string>> HostsOf(absl::string_view packed);
  // The worker of an address listens on these. Errors: those of Rewrite.
  static absl::StatusOr<std::vector<UcxListener>> ListenersOf(absl::string_view packed);

 private:
  // An interface of a host: a device with one transport, tcp.
  struct Interface {
    std::uint8_t memory_domain = 0;  // index and flags
    std::uint16_t transport = 0;     // checksum of the transport's name
    float overhead = 0;              // seconds
    float bandwidth = 0;             // bytes per second
    float latency = 0;               // seconds
    std::uint32_t capabilities = 0;  // above a priority of 8 bits
    std::string device;              // flags, address family, then IP address or host
    std::uint16_t port = 0;          // big-endian
  };
  struct Address {
    std::uint64_t worker = 0;
    std::vector<Interface> interfaces;
  };
  class Reader;

  static absl::StatusOr<Address> Parse(absl::string_view packed);
  static absl::Status ParseInterface(Reader* at, Interface* out, bool* last);
  [[nodiscard]] absl::Status CheckInterface(const Interface& peer) const;

  Interface pattern_;
  Address sender_;
};

}  // namespace switchyard
