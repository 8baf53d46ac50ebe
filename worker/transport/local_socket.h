// Unix sockets on which processes of one host pass each other descriptors.
//
// A socket has a name of 128 random bits. Without a directory the name is an abstract one: it
// leaves nothing behind, whatever ends its process, and reaches all processes of one network
// namespace; the kernel protects it from nobody, so both ends compare users. With a directory the
// name is that of a file in it: it reaches all processes that share the directory, and the
// directory's permissions say which may connect.
//
// Messages keep their borders (SOCK_SEQPACKET). Nothing here raises SIGPIPE. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "worker/transport/descriptor.h"

namespace switchyard {

using SocketName = RandomId<struct SocketNameTag>;

// Whether sockets can be files in `directory`; an empty one is fine. Errors: kInvalidArgument
// (BAD_CONFIG) if it is not a directory that this process may write to, or its path is too long for
// the address of a socket.
absl::Status CheckSocketDirectory(const std::string& directory);

// A socket that listens. The destructor removes its file.
class LocalListener {
 public:
  // Also removes files of dead processes from `directory`: sockets with a name of this kind to
  // which nothing listens. Errors: kResourceExhausted (OUT_OF_MEMORY) without a free descriptor;
  // kFailedPrecondition (TRANSPORT) for any other reason.
  static absl::StatusOr<LocalListener> Open(const std::string& directory, const SocketName& name);
  LocalListener() = default;
  LocalListener(LocalListener&& other) noexcept { *this = std::move(other); }
  LocalListener& operator=(LocalListener&& other) noexcept;
  ~LocalListener();

  // Does not block when nobody waits.
  [[nodiscard]] int get() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::string file_;  // empty: abstract, or moved away
};

// Connects to a peer's socket. Blocks only while the queue of its listener is full, at most
// `patience`. The result does not block. Errors: kFailedPrecondition (TRANSPORT); the text says
// what to change.
absl::StatusOr<Descriptor> ConnectLocal(const std::string& directory, const SocketName& name,
                                        Duration patience);

// The user of the process at the other end of a connection; of its listener for the end that
// connected. Empty: unknown.
std::optional<uid_t> UserAt(int connection);

// Descriptors always travel two at a time.
using DescriptorPair = std::array<Descriptor, 2>;

// Sends one message that a peer can read without waiting, with copies of `descriptors` if there are
// two. False if it cannot be sent now; errno says why. Never blocks.
bool SendMessage(int connection, std::span<const std::byte> bytes,
                 std::span<const int> descriptors = {});

// A message that has arrived.
struct LocalMessage {
  std::size_t bytes = 0;       // that were stored
  bool whole = true;           // false: longer, or with more descriptors than were taken
  DescriptorPair descriptors;  // valid both or neither
};
// Takes the next message without waiting: as many bytes as fit into `bytes`, and two descriptors if
// `descriptors` is true. All others that a peer sends along are closed. Empty without a message;
// errno is then 0 if the peer has closed the connection.
std::optional<LocalMessage> ReceiveMessage(int connection, std::span<std::byte> bytes,
                                           bool descriptors);

}  // namespace switchyard
