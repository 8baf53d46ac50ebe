#include "worker/transport/shared_ring.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/sealed_blob.h"
#include "worker/transport/shared_stores.h"
#include "worker/transport/sleeper.h"

namespace switchyard {
namespace {

// The name only appears in /proc; it identifies our files there. It is not a path.
constexpr const char* kFileName = "switchyard-ring";
// How the links of such files and of pipes in /proc begin.
constexpr absl::string_view kFileLink = "/memfd:switchyard-ring";
constexpr absl::string_view kPipeLink = "pipe:[";
// Shrinking would turn the peer's next store into SIGBUS; the last seal makes the others final.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A descriptor of another process and the inode of what it should lead to: the process id may have
// been reused by another program of ours, and the inode shows it.
struct Place {
  std::int32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t inode = 0;
};

// Everything that a peer needs to open and recognize the ring, and to wake its owner.
struct RingKey {
  std::uint64_t tag = 0;
  Place file;
  Place wake_pipe;
};

absl::Status NoMemory(std::size_t bytes, absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   absl::StrCat("transport: no memory for a ring of ", bytes, " bytes (", what,
                                " failed with errno ", errno,
                                "); use fewer or smaller slots, or raise the memory limit"));
}

absl::Status NotMapped(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                   absl::StrCat("transport: the peer's ring cannot be mapped: ", why));
}

absl::StatusOr<RingPages> MapFile(int file, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return NoMemory(bytes, "mmap");
  return RingPages({static_cast<std::byte*>(memory), bytes});
}

// Creates this process's page table entries now, so that no step pays for page faults. Uses loads,
// because a store could overwrite data of the other side.
void MakePresent(std::span<const std::byte> memory) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < memory.size(); at += page) {
    static_cast<void>(
        __atomic_load_n(reinterpret_cast<const unsigned char*>(&memory[at]), __ATOMIC_RELAXED));
  }
}

// Opens what `place` leads to if its link in /proc begins with `kind`. The link is read first,
// because the descriptor may be reused by now, and merely opening some files, such as devices, has
// side effects.
absl::StatusOr<Descriptor> Open(const Place& place, absl::string_view kind) {
  const std::string path = absl::StrCat("/proc/", place.process, "/fd/", place.descriptor);
  std::array<char, 64> link{};
  const ssize_t length = ::readlink(path.c_str(), link.data(), link.size());
  if (length <= 0) {
    return NotMapped(absl::StrCat("reading the peer's descriptor failed with errno ", errno));
  }
  if (!absl::StartsWith(absl::string_view(link.data(), static_cast<std::size_t>(length)), kind)) {
    return NotMapped("the peer's descriptor belongs to another file");
  }
  // NONBLOCK and NOCTTY guard against side effects, should the descriptor change after the check.
  // A pipe is opened for reading too, so that writing to it never raises SIGPIPE.
  Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!opened.valid()) return NotMapped(absl::StrCat("open failed with errno ", errno));
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0 || status.st_ino != place.inode) {
    return NotMapped("the file is not the one that the peer offered");
  }
  return opened;
}

absl::Status CheckFile(const Descriptor& file, std::size_t bytes) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    return NotMapped("the file does not have the size that the peer offered");
  }
  if ((::fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    return NotMapped("the file is not sealed against shrinking");
  }
  return absl::OkStatus();
}

// A blob with wrong sizes comes from another release; wrong numbers are found when they are used.
absl::StatusOr<RingKey> OpenKey(absl::string_view key) {
  RingKey opened;
  const std::optional<absl::string_view> blob = OpenBlob(BlobKind::kRingKey, key);
  if (!blob.has_value() || blob->size() != sizeof(opened)) {
    return NotMapped("its key is not valid here; check that both sides run the same release");
  }
  std::memcpy(&opened, blob->data(), sizeof(opened));
  return opened;
}

// The inode of an open file; 0 if there is none.
std::uint64_t InodeOf(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

RingPages::~RingPages() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

absl::StatusOr<RingPages> AllocatePages(std::size_t bytes) {
  if (bytes == 0) return RingPages();
  // MAP_POPULATE for the same reason as MakePresent: no page faults within a step.
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return NoMemory(bytes, "mmap");
  return RingPages({static_cast<std::byte*>(memory), bytes});
}

absl::StatusOr<InboundRing> InboundRing::Allocate(Kind kind, const RingShape& shape,
                                                  std::uint64_t tag, int wake_pipe) {
  InboundRing ring;
  if (kind == Kind::kMapped) {
    SY_RETURN_IF_ERROR(ring.AllocateMapped(shape, tag, wake_pipe));
  } else {
    SY_ASSIGN_OR_RETURN(ring.pages_, AllocatePages(shape.bytes()));
  }
  ring.bytes_ = shape.bytes();
  return ring;
}

absl::Status InboundRing::AllocateMapped(const RingShape& shape, std::uint64_t tag, int wake_pipe) {
  const std::size_t bytes = shape.bytes() + BellBytes(shape.slots);
  // CLOEXEC, because a child process must not inherit the descriptor.
  Descriptor file(::memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return NoMemory(bytes, "memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return NoMemory(bytes, "ftruncate");
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory(bytes, "sealing");
  SY_ASSIGN_OR_RETURN(pages_, MapFile(file.get(), bytes));
  // Reserve the memory now: a lack of it is an error here, but would be a SIGBUS at first use.
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return NoMemory(bytes, "fallocate");
  }
  MakePresent(pages_.memory());
  bells_ = BellOwner(pages_.memory().subspan(shape.bytes()), shape.slots, tag);

  const auto process = static_cast<std::int32_t>(::getpid());
  const RingKey key{.tag = tag,
                    .file = {process, file.get(), InodeOf(file.get())},
                    .wake_pipe = {process, wake_pipe, InodeOf(wake_pipe)}};
  std::array<char, sizeof(key)> bytes_of_key{};
  std::memcpy(bytes_of_key.data(), &key, sizeof(key));
  key_ = SealBlob(BlobKind::kRingKey, {bytes_of_key.data(), bytes_of_key.size()});
  file_ = std::move(file);
  return absl::OkStatus();
}

InboundRing& InboundRing::operator=(InboundRing&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(pages_, other.pages_);
  std::swap(bytes_, other.bytes_);
  std::swap(bells_, other.bells_);
  std::swap(key_, other.key_);
  return *this;
}

InboundRing::~InboundRing() {
  if (mapped()) bells_.SetState(BellState::kClosed);
}

absl::StatusOr<PeerRing> PeerRing::Map(absl::string_view key, const RingShape& shape) {
  SY_ASSIGN_OR_RETURN(const RingKey opened, OpenKey(key));
  SY_ASSIGN_OR_RETURN(const Descriptor file, Open(opened.file, kFileLink));
  const std::size_t bytes = shape.bytes() + BellBytes(shape.slots);
  SY_RETURN_IF_ERROR(CheckFile(file, bytes));
  SY_ASSIGN_OR_RETURN(Descriptor wake_pipe, Open(opened.wake_pipe, kPipeLink));
  // The mapping keeps the memory alive, so the file can be closed on return.
  SY_ASSIGN_OR_RETURN(RingPages pages, MapFile(file.get(), bytes));
  MakePresent(pages.memory());
  const BellPeer bells(pages.memory().subspan(shape.bytes()), shape.slots);
  // The last check: an inode number can be reused, but a random tag does not repeat.
  if (bells.tag() != opened.tag) return NotMapped("its memory does not contain the offered tag");
  return PeerRing(std::move(pages), shape.bytes(), bells, std::move(wake_pipe));
}

bool PeerRing::Ring(std::uint32_t slot) {
  PublishStores();
  const BellPeer::Rung rung = bells_.Ring(slot);
  if (rung == BellPeer::Rung::kWake) {
    const std::byte wake = Sleeper::kPeerWake;
    // The only failure that can happen is a full pipe, which wakes its reader as well.
    [[maybe_unused]] const auto written = ::write(wake_pipe_.get(), &wake, sizeof(wake));
  }
  return rung != BellPeer::Rung::kRefused;
}

}  // namespace switchyard
