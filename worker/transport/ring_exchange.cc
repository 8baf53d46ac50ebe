#include "worker/transport/ring_exchange.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/sealed_blob.h"

namespace switchyard {
namespace {

// A key as bytes.
struct PackedKey {
  std::uint64_t tag = 0;
  std::array<std::uint64_t, 2> socket{};
  std::array<std::uint64_t, 2> secret{};
  std::uint64_t in_directory = 0;
};

// How long a visitor waits for a place in a server's queue, which passes in an instant.
// Less than for the answer: whose queue it is shows only then.
constexpr Duration kQueueMax = std::chrono::milliseconds(100);

constexpr absl::string_view kCut =
    "its descriptors did not arrive; raise this process's limit of open files (ulimit -n)";

// An abstract name can be taken by anybody, so the secret goes only to a process of this user. In a
// directory, its permissions have decided.
absl::Status CheckServer(const RingKey& key, int connection) {
  if (key.in_directory) return absl::OkStatus();
  const std::optional<uid_t> user = UserAt(connection);
  if (user == ::geteuid()) return absl::OkStatus();
  return NotMapped(absl::StrCat("its socket belongs to user ", user ? absl::StrCat(*user) : "?",
                                ", this process to user ", ::geteuid(),
                                "; run both as one user or give both the same shared directory "
                                "(--ring-dir)"));
}

// False if nothing has come within `patience`.
bool WaitForMessage(int connection, Duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::max(until - std::chrono::steady_clock::now(), Duration::zero()));
    const timespec time{.tv_sec = left.count() / 1'000'000'000,
                        .tv_nsec = left.count() % 1'000'000'000};
    pollfd ready{connection, POLLIN, 0};
    const int found = ::ppoll(&ready, 1, &time, nullptr);
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

absl::Status Refused(std::byte answer) {
  switch (static_cast<RingAnswer>(answer)) {
    case RingAnswer::kUnknown:
      return NotMapped("its process does not offer that ring any more");
    case RingAnswer::kOtherUser:
      return NotMapped(
          "its process runs as another user; run both as one user or give both the same shared "
          "directory (--ring-dir)");
    case RingAnswer::kNotSent:
      return NotMapped(
          "its process could not send the descriptors; raise its limit of open files (ulimit -n)");
    case RingAnswer::kRing:
      return NotMapped(kCut);
  }
  return NotMapped("its process gave an unknown answer; run one release on both sides");
}

}  // namespace

absl::Status NotMapped(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                   absl::StrCat("transport: the peer's ring cannot be mapped: ", why));
}

std::string SealRingKey(const RingKey& key) {
  const PackedKey packed{.tag = key.tag,
                         .socket = {key.socket.high, key.socket.low},
                         .secret = {key.secret.high, key.secret.low},
                         .in_directory = key.in_directory ? 1U : 0U};
  std::array<char, sizeof(packed)> bytes{};
  std::memcpy(bytes.data(), &packed, sizeof(packed));
  return SealBlob(BlobKind::kRingKey, {bytes.data(), bytes.size()});
}

absl::StatusOr<RingKey> OpenRingKey(absl::string_view sealed) {
  if (sealed.empty()) return NotMapped("it offers none; it was opened for tcp");
  PackedKey packed;
  const std::optional<absl::string_view> blob = OpenBlob(BlobKind::kRingKey, sealed);
  // A blob of another size comes from another release; wrong numbers are found when they are used.
  if (!blob.has_value() || blob->size() != sizeof(packed)) {
    return NotMapped("its key is not valid here; check that both sides run the same release");
  }
  std::memcpy(&packed, blob->data(), sizeof(packed));
  return RingKey{.tag = packed.tag,
                 .socket = {packed.socket[0], packed.socket[1]},
                 .secret = {packed.secret[0], packed.secret[1]},
                 .in_directory = packed.in_directory != 0};
}

absl::StatusOr<RingVisit> RingVisit::Make(const RingKey& key, const std::string& directory,
                                          Duration patience) {
  if (key.socket.empty())
    return NotMapped(
        "its process does not listen for a visit; check its limit of open files (ulimit -n) and "
        "its "
        "directory (--ring-dir)");
  if (key.in_directory && directory.empty()) {
    return NotMapped(
        "its socket is in a directory; give this process the same shared directory (--ring-dir)");
  }
  const auto until = std::chrono::steady_clock::now() + patience;
  absl::StatusOr<Descriptor> connected = ConnectLocal(key.in_directory ? directory : std::string(),
                                                      key.socket, std::min(patience, kQueueMax));
  if (!connected.ok()) return NotMapped(connected.status().message());
  const int connection = connected->get();
  SY_RETURN_IF_ERROR(CheckServer(key, connection));
  // A failure shows below: the server has closed the connection, or does not answer.
  static_cast<void>(SendMessage(connection, std::as_bytes(std::span(&key.secret, 1))));
  if (!WaitForMessage(connection, until - std::chrono::steady_clock::now())) {
    return NotMapped(
        absl::StrCat("its process did not answer within ",
                     std::chrono::duration_cast<std::chrono::milliseconds>(patience).count(),
                     " ms; it is stopped, overloaded or out of file descriptors (ulimit -n)"));
  }
  std::array<std::byte, 2> answer{};
  std::optional<LocalMessage> message = ReceiveMessage(connection, answer, true);
  if (!message.has_value()) return NotMapped("its process closed the connection");
  if (!message->descriptors[0].valid() || answer[0] != static_cast<std::byte>(RingAnswer::kRing) ||
      message->bytes != 1) {
    return Refused(answer[0]);
  }
  return RingVisit(*std::move(connected), {.file = std::move(message->descriptors[0]),
                                           .wake = std::move(message->descriptors[1])});
}

bool RingVisit::HandOver(int file, int wake) const {
  constexpr std::array kRing = {static_cast<std::byte>(RingAnswer::kRing)};
  return SendMessage(connection_.get(), kRing, std::array{file, wake});
}

absl::StatusOr<RingParts> TakeHandedOver(int connection) {
  std::array<std::byte, 2> answer{};
  std::optional<LocalMessage> message = ReceiveMessage(connection, answer, true);
  if (!message.has_value()) return NotMapped("its process has not handed it over");
  if (!message->descriptors[0].valid() || answer[0] != static_cast<std::byte>(RingAnswer::kRing) ||
      message->bytes != 1) {
    return Refused(answer[0]);
  }
  return RingParts{.file = std::move(message->descriptors[0]),
                   .wake = std::move(message->descriptors[1])};
}

}  // namespace switchyard
