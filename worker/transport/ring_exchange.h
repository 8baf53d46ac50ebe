// How two processes of one host give each other their rings: one connection, both directions.
//
//   server (made its offer first)               visitor (has that offer)
//     key in the offer: socket, secret  ----->  connects, sends the secret
//     its ring                          ----->  maps it
//                                       <-----  its own ring
//     takes that ring, maps it          <-----  its own offer, by another way (the answer to
//     Attach)
//
// A ring travels as two descriptors: its file and the pipe that wakes its owner. The visitor
// waits for the server's thread (ring_server.h), at most kRingVisitMax. The server's side never
// waits: what it takes has been sent before it learns of the visitor's offer.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "worker/transport/local_socket.h"

namespace switchyard {

// How long a visitor waits. A server that runs answers within a scheduler's turn.
inline constexpr Duration kRingVisitMax = std::chrono::seconds(1);

// Shows that a visitor has the offer.
using RingSecret = RandomId<struct RingSecretTag>;

// Everything that a peer needs to get and recognize a ring; RingOffer.rkey holds it, sealed.
struct RingKey {
  std::uint64_t tag = 0;      // also in the ring
  SocketName socket{};        // of the server; none in a visitor's key
  RingSecret secret{};        // none in a visitor's key
  bool in_directory = false;  // `socket` is a file
};
std::string SealRingKey(const RingKey& key);
// Errors: kFailedPrecondition (TRANSPORT) for anything that SealRingKey has not made.
absl::StatusOr<RingKey> OpenRingKey(absl::string_view sealed);

// The error of everything that keeps a peer's ring from being mapped: kFailedPrecondition
// (TRANSPORT).
absl::Status NotMapped(absl::string_view why);

// Descriptors that a peer has sent. Nothing about them is checked yet.
struct RingParts {
  Descriptor file;
  Descriptor wake;
};

// The server's answer to a secret, in one byte.
enum class RingAnswer : std::uint8_t {
  kRing = 1,       // comes with the descriptors
  kUnknown = 2,    // the secret belongs to no ring that is offered
  kOtherUser = 3,  // an abstract socket serves its own user only
  kNotSent = 4,    // the kernel did not take the descriptors
};

// A visit that has succeeded.
class RingVisit {
 public:
  // `directory`: of this process's sockets. Errors: kFailedPrecondition (TRANSPORT); the text says
  // what to change. Thread-safe.
  static absl::StatusOr<RingVisit> Make(const RingKey& key, const std::string& directory,
                                        Duration patience = kRingVisitMax);

  // The server's ring; once.
  RingParts TakeParts() { return std::move(parts_); }
  // Gives the server this process's ring. Does not wait. False if that failed.
  [[nodiscard]] bool HandOver(int file, int wake) const;

 private:
  RingVisit(Descriptor connection, RingParts parts)
      : connection_(std::move(connection)), parts_(std::move(parts)) {}

  Descriptor connection_;
  RingParts parts_;
};

// At the server: the ring that the visitor at the other end of `connection` has handed over. Does
// not wait. Errors: kFailedPrecondition (TRANSPORT).
absl::StatusOr<RingParts> TakeHandedOver(int connection);

}  // namespace switchyard
