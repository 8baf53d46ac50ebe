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

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/sealed_blob.h"

namespace switchyard {
namespace {

// The name only appears in /proc; it identifies our files there. It is not a path.
constexpr const char* kFileName = "switchyard-ring";
// Shrinking would turn the peer's next store into SIGBUS; the last seal makes the others final.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Everything that a peer needs to open and recognize the ring.
struct RingKey {
  std::uint64_t tag = 0;
  std::uint64_t inode = 0;
  std::int32_t process = 0;
  std::int32_t file = 0;
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

// Opens the file of `key`. Checks its name first, because the descriptor may be reused by now, and
// merely opening some files, such as devices, has side effects.
absl::StatusOr<RingFile> OpenFileOf(const RingKey& key) {
  const std::string path = absl::StrCat("/proc/", key.process, "/fd/", key.file);
  std::array<char, 64> link{};
  const ssize_t length = ::readlink(path.c_str(), link.data(), link.size());
  if (length <= 0) {
    return NotMapped(absl::StrCat("reading the peer's descriptor failed with errno ", errno));
  }
  if (!absl::StartsWith(absl::string_view(link.data(), static_cast<std::size_t>(length)),
                        absl::StrCat("/memfd:", kFileName))) {
    return NotMapped("the peer's descriptor belongs to another file");
  }
  // NONBLOCK and NOCTTY guard against side effects, should the descriptor change after the check.
  RingFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) return NotMapped(absl::StrCat("open failed with errno ", errno));
  return file;
}

// The process id may have been reused by another program of ours; the inode distinguishes its
// rings from the one that was offered.
absl::Status CheckFile(const RingFile& file, const RingKey& key, std::size_t bytes) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_ino != key.inode ||
      static_cast<std::size_t>(status.st_size) != bytes) {
    return NotMapped("the file is not the one that the peer offered");
  }
  if ((::fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    return NotMapped("the file is not sealed against shrinking");
  }
  return absl::OkStatus();
}

}  // namespace

void RingFileTraits::Close(Handle fd) { ::close(fd); }

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

absl::StatusOr<InboundRing> InboundRing::Allocate(Kind kind, std::size_t bytes, std::uint64_t tag) {
  InboundRing ring;
  if (kind == Kind::kMapped) {
    SY_RETURN_IF_ERROR(ring.AllocateMapped(bytes, tag));
  } else {
    SY_ASSIGN_OR_RETURN(ring.pages_, AllocatePages(bytes));
  }
  return ring;
}

absl::Status InboundRing::AllocateMapped(std::size_t bytes, std::uint64_t tag) {
  // CLOEXEC, because a child process must not inherit the descriptor.
  SY_CHECK(bytes >= sizeof(tag), "a ring without room for its tag");
  RingFile file(::memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return NoMemory(bytes, "memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return NoMemory(bytes, "ftruncate");
  struct stat status {};
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0 || ::fstat(file.get(), &status) != 0) {
    return NoMemory(bytes, "sealing");
  }
  SY_ASSIGN_OR_RETURN(pages_, MapFile(file.get(), bytes));
  // Reserve the memory now: a lack of it is an error here, but would be a SIGBUS at first use.
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return NoMemory(bytes, "fallocate");
  }
  MakePresent(memory());
  std::memcpy(memory().data(), &tag, sizeof(tag));

  const RingKey key{.tag = tag,
                    .inode = status.st_ino,
                    .process = static_cast<std::int32_t>(::getpid()),
                    .file = file.get()};
  std::array<char, sizeof(key)> bytes_of_key{};
  std::memcpy(bytes_of_key.data(), &key, sizeof(key));
  key_ = SealBlob(BlobKind::kRingKey, {bytes_of_key.data(), bytes_of_key.size()});
  file_ = std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<PeerRing> PeerRing::Map(absl::string_view key, std::size_t bytes) {
  RingKey opened;
  const std::optional<absl::string_view> blob = OpenBlob(BlobKind::kRingKey, key);
  if (!blob.has_value() || blob->size() != sizeof(opened) || bytes < sizeof(opened.tag)) {
    return NotMapped("its key is not valid here; check that both sides run the same release");
  }
  std::memcpy(&opened, blob->data(), sizeof(opened));
  SY_ASSIGN_OR_RETURN(const RingFile file, OpenFileOf(opened));
  SY_RETURN_IF_ERROR(CheckFile(file, opened, bytes));
  // The mapping keeps the memory alive, so the file can be closed on return.
  SY_ASSIGN_OR_RETURN(RingPages pages, MapFile(file.get(), bytes));
  MakePresent(pages.memory());
  // The last check: an inode number can be reused, but a random tag does not repeat.
  if (std::memcmp(pages.memory().data(), &opened.tag, sizeof(opened.tag)) != 0) {
    return NotMapped("its memory does not contain the offered tag");
  }
  return PeerRing(std::move(pages));
}

}  // namespace switchyard
