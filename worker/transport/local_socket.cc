#include "worker/transport/local_socket.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr absl::string_view kPrefix = "switchyard-";
constexpr std::size_t kNameChars = 11 + 32;  // the prefix and 128 bits in hex
// The path, a slash, the name and a NUL have to fit into an address.
constexpr std::size_t kDirectoryCharsMax = sizeof(sockaddr_un::sun_path) - kNameChars - 2;
// Connections that may wait for a server. A peer that finds the queue full waits for a place.
constexpr int kBacklog = 128;
// A directory with more files than this is not cleaned to its end.
constexpr int kFilesMax = 4'096;
// A socket that was bound and never began to listen belongs to a process that was killed between
// the two calls if it is so much older than one that has just been made.
constexpr std::time_t kUnbornSeconds = 60;
constexpr mode_t kReadWrite = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;

struct Address {
  sockaddr_un bytes{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

std::string FileNameOf(const SocketName& name) { return absl::StrCat(kPrefix, ToHex(name)); }

bool IsOurFileName(const std::string& name) {
  return name.size() == kNameChars && absl::StartsWith(name, kPrefix) &&
         RandomIdFromHex<SocketName>(name.substr(kPrefix.size())).ok();
}

// REQUIRES: `path` fits.
Address AddressOf(const std::string& path) {
  Address address;
  address.bytes.sun_family = AF_UNIX;
  std::memcpy(address.bytes.sun_path, path.data(), path.size());
  // Only a file's name ends with a NUL; to an abstract one it would belong.
  const std::size_t end = path.front() == '\0' ? 0 : 1;
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + end);
  return address;
}

std::string PathOf(const std::string& directory, const SocketName& name) {
  if (directory.empty()) return std::string(1, '\0') + FileNameOf(name);
  return absl::StrCat(directory, "/", FileNameOf(name));
}

absl::Status BadDirectory(const std::string& directory, absl::string_view why) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
      absl::StrCat("the directory for ring sockets \"", directory, "\" cannot be used: ", why));
}

absl::Status NoListener(const std::string& directory, absl::string_view call) {
  const int error = errno;
  const bool full = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  return MakeError(
      full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
      full ? Reason::kOutOfMemory : Reason::kTransport,
      absl::StrCat("transport: cannot listen for peers that map rings",
                   directory.empty() ? "" : absl::StrCat(" in \"", directory, "\""), ": ", call,
                   " failed (", std::strerror(error), ")",
                   full ? "; raise the limit of open files (ulimit -n)" : ""));
}

absl::Status NotReached(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                   absl::StrCat("the peer's socket cannot be reached (", why, ")"));
}

bool IsDead(const std::string& path) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = AddressOf(path);
  return socket.valid() && ::connect(socket.get(), address.get(), address.length) != 0 &&
         errno == ECONNREFUSED;
}

// A socket is made without permissions and gets them when it listens (see LocalListener::Open), so
// that the pause in between does not look like death.
void RemoveDeadFiles(const std::string& directory, const SocketName& own, std::time_t now) {
  const std::string own_file = FileNameOf(own);
  std::error_code failed;
  int files = 0;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (++files > kFilesMax) break;
    const std::string& path = at->path().native();
    struct stat status {};
    const std::string name = at->path().filename();
    if (name == own_file || !IsOurFileName(name) || ::lstat(path.c_str(), &status) != 0 ||
        !S_ISSOCK(status.st_mode)) {
      continue;
    }
    const bool born = (status.st_mode & ACCESSPERMS) != 0;
    const bool dead = born ? IsDead(path) : now - status.st_ctim.tv_sec > kUnbornSeconds;
    if (dead) ::unlink(path.c_str());
  }
}

Descriptor NewSocket(int flags) {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

absl::string_view Advice(const std::string& directory) {
  if (!directory.empty()) {
    return "; both processes need the same shared directory (--ring-dir) and write permission in "
           "it";
  }
  return "; processes on one host but in different network namespaces need the same shared "
         "directory (--ring-dir)";
}

}  // namespace

absl::Status CheckSocketDirectory(const std::string& directory) {
  if (directory.empty()) return absl::OkStatus();
  if (directory.size() > kDirectoryCharsMax) {
    return BadDirectory(directory,
                        absl::StrCat("its path has ", directory.size(), " characters, at most ",
                                     kDirectoryCharsMax, " fit into the address of a socket"));
  }
  std::error_code failed;
  if (!std::filesystem::is_directory(directory, failed)) {
    return BadDirectory(directory, "there is no such directory; create it");
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return BadDirectory(directory, "this process may not create files in it");
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalListener> LocalListener::Open(const std::string& directory,
                                                  const SocketName& name) {
  SY_RETURN_IF_ERROR(CheckSocketDirectory(directory));
  LocalListener made;
  made.socket_ = NewSocket(SOCK_NONBLOCK);
  if (!made.socket_.valid()) return NoListener(directory, "socket");
  const int socket = made.socket_.get();
  const std::string path = PathOf(directory, name);
  if (!directory.empty()) ::fchmod(socket, 0);  // the file's permissions, see RemoveDeadFiles
  const Address address = AddressOf(path);
  if (::bind(socket, address.get(), address.length) != 0) return NoListener(directory, "bind");
  if (!directory.empty()) made.file_ = path;
  if (::listen(socket, kBacklog) != 0) return NoListener(directory, "listen");
  if (directory.empty()) return made;

  // To connect takes write permission, which whoever may write to the directory gets.
  struct stat shared {};
  struct stat own {};
  if (::stat(directory.c_str(), &shared) != 0 ||
      ::fchmodat(AT_FDCWD, path.c_str(), shared.st_mode & kReadWrite, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::lstat(path.c_str(), &own) != 0) {
    return NoListener(directory, "setting permissions");
  }
  RemoveDeadFiles(directory, name, own.st_ctim.tv_sec);
  return made;
}

LocalListener& LocalListener::operator=(LocalListener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(file_, other.file_);
  return *this;
}

LocalListener::~LocalListener() {
  if (!file_.empty()) ::unlink(file_.c_str());
}

absl::StatusOr<Descriptor> ConnectLocal(const std::string& directory, const SocketName& name,
                                        Duration patience) {
  SY_RETURN_IF_ERROR(CheckSocketDirectory(directory));
  Descriptor socket = NewSocket(0);
  if (!socket.valid()) return NotReached(absl::StrCat("socket: ", std::strerror(errno)));
  const auto until = std::chrono::steady_clock::now() + patience;
  const Address address = AddressOf(PathOf(directory, name));
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
        until - std::chrono::steady_clock::now());
    if (left <= std::chrono::microseconds::zero()) {
      return NotReached("its queue stays full");
    }
    // The kernel's bound for a connect that waits for a place in the queue. 0 would mean none.
    const timeval time{.tv_sec = left.count() / 1'000'000, .tv_usec = left.count() % 1'000'000};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
    if (::connect(socket.get(), address.get(), address.length) == 0) break;
    if (errno == EINTR || errno == EAGAIN) continue;
    return NotReached(absl::StrCat(std::strerror(errno), Advice(directory)));
  }
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return socket;
}

std::optional<uid_t> UserAt(int connection) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}

bool SendMessage(int connection, std::span<const std::byte> bytes,
                 std::span<const int> descriptors) {
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors.size() == 2) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), 2 * sizeof(int));
  }
  return ::sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<LocalMessage> ReceiveMessage(int connection, std::span<std::byte> bytes,
                                           bool descriptors) {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  // Room for two descriptors and not for a third: the kernel closes what has no room.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  errno = 0;
  const ssize_t got = ::recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got <= 0) return std::nullopt;

  LocalMessage taken;
  taken.bytes = static_cast<std::size_t>(got);
  taken.whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  std::size_t count = 0;
  for (cmsghdr* at = descriptors ? CMSG_FIRSTHDR(&message) : nullptr; at != nullptr;
       at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t used = CMSG_LEN(0); used + sizeof(int) <= at->cmsg_len; used += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, reinterpret_cast<std::byte*>(at) + used, sizeof(descriptor));
      Descriptor owned(descriptor);
      if (count < taken.descriptors.size()) taken.descriptors[count++] = std::move(owned);
    }
  }
  // One alone is of no use, and the second may have been lost to the limit of open files.
  if (count != taken.descriptors.size() || !taken.whole) taken.descriptors = {};
  return taken;
}

}  // namespace switchyard
