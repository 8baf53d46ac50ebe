#include "worker/device/host/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/unique_handle.h"
#include "core/rng.h"

namespace switchyard {
namespace {

// Only shown by tools; it is not a path.
constexpr const char* kFileName = "switchyard-shared";
// Shrinking would turn a peer's next store into SIGBUS; the last seal makes the others final.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// The tag, and as much as keeps the memory behind it 64-byte aligned.
constexpr std::size_t kPreamble = 64;

struct FileTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle file) { ::close(file); }
};
using File = UniqueHandle<FileTraits>;

// A key as bytes. Both processes are of one host and one release.
struct Key {
  std::uint32_t magic = kMagic;
  std::int32_t pid = 0;
  std::int32_t file = 0;
  std::uint32_t reserved = 0;
  std::uint64_t tag[2] = {};

  static constexpr std::uint32_t kMagic = 0x48435953;  // "SYCH"
};
static_assert(std::is_trivially_copyable_v<Key> && sizeof(Key) == 32);

absl::Status NoMemory(std::size_t bytes, absl::string_view what) {
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
      absl::StrCat("no memory for ", bytes, " bytes that other processes reach (", what, ", errno ",
                   errno, "); raise the memory limit, or share fewer rows"),
      {{"bytes", absl::StrCat(bytes)}});
}

absl::Status BadKey(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("the peer's key of shared memory ", what));
}

absl::Status OutOfReach(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   absl::StrCat("the peer's shared memory is out of reach: ", why,
                                "; both processes have to run as one user, in one PID namespace"));
}

// The memory of the machine. The system would take page after page for a file that is larger, and
// end processes when there are no more.
std::size_t MachineBytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Maps the file whole; its memory begins behind the preamble.
class SharedHostBuffer final : public Buffer {
 public:
  SharedHostBuffer(std::byte* mapped, std::size_t bytes, File file)
      : Buffer(mapped + kPreamble, bytes, MemoryKind::kDevice), file_(std::move(file)) {}
  ~SharedHostBuffer() override { ::munmap(data() - kPreamble, bytes() + kPreamble); }

 private:
  const File file_;  // the owner's stays open, because keys name it
};

// Null, with errno, if the system refuses.
std::byte* Map(const File& file, std::size_t bytes) {
  void* memory =
      ::mmap(nullptr, bytes + kPreamble, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// The file that a key names. The first descriptor opens nothing (O_PATH): whatever the peer has put
// under that number, such as a terminal or a pipe, is looked at before it is opened.
absl::StatusOr<File> OpenFile(const Key& key) {
  const File named(
      ::open(absl::StrCat("/proc/", key.pid, "/fd/", key.file).c_str(), O_PATH | O_CLOEXEC));
  if (!named.valid()) return OutOfReach(absl::StrCat("opening it failed with errno ", errno));
  struct stat status {};
  if (::fstat(named.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid()) {
    return OutOfReach("it is no file of this user");
  }
  File file(
      ::open(absl::StrCat("/proc/self/fd/", named.get()).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return OutOfReach(absl::StrCat("opening it failed with errno ", errno));
  // Only a memfd has seals.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return OutOfReach("it is not sealed against shrinking");
  }
  return file;
}

}  // namespace

absl::StatusOr<SharedBuffer> AllocateHostShared(std::size_t bytes) {
  errno = ENOMEM;
  if (bytes > MachineBytes()) return NoMemory(bytes, "the machine's memory");
  File file(::memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return NoMemory(bytes, "memfd_create");
  const auto size = static_cast<off_t>(bytes + kPreamble);
  if (::ftruncate(file.get(), size) != 0) return NoMemory(bytes, "ftruncate");
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory(bytes, "sealing");
  // Reserve the memory now: a lack of it is an error here, but would be a SIGBUS at first use.
  if (::fallocate(file.get(), 0, 0, size) != 0) return NoMemory(bytes, "fallocate");
  std::byte* const mapped = Map(file, bytes);
  if (mapped == nullptr) return NoMemory(bytes, "mmap");

  SystemRng random;
  const Key key{.pid = ::getpid(), .file = file.get(), .tag = {random.Next(), random.Next()}};
  std::memcpy(mapped, key.tag, sizeof key.tag);
  SharedBuffer shared;
  shared.key.assign(reinterpret_cast<const char*>(&key), sizeof key);
  shared.buffer = std::make_unique<SharedHostBuffer>(mapped, bytes, std::move(file));
  return shared;
}

absl::StatusOr<std::unique_ptr<Buffer>> OpenHostShared(absl::string_view key, std::size_t bytes) {
  Key parts;
  if (key.size() != sizeof parts) return BadKey("is none of memory of a host");
  std::memcpy(&parts, key.data(), sizeof parts);
  if (parts.magic != Key::kMagic || parts.pid <= 0 || parts.file < 0) {
    return BadKey("is none of memory of a host");
  }
  SY_ASSIGN_OR_RETURN(File file, OpenFile(parts));
  // The seals keep the size that the file has now.
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return OutOfReach("its size cannot be read");
  const auto size = static_cast<std::size_t>(status.st_size);
  std::uint64_t tag[2] = {};
  // Before its size says anything: it may be another file, whose number the owner has used again.
  if (::pread(file.get(), tag, sizeof tag, 0) != static_cast<ssize_t>(sizeof tag) ||
      std::memcmp(tag, parts.tag, sizeof tag) != 0) {
    return OutOfReach("its owner has freed it");
  }
  if (size < kPreamble || size - kPreamble < bytes) {
    return BadKey(absl::StrCat("is of ", size - std::min(size, kPreamble), " bytes, and ", bytes,
                               " are needed"));
  }
  std::byte* const mapped = Map(file, bytes);
  if (mapped == nullptr) return NoMemory(bytes, "mmap");
  // The mapping keeps the file.
  return std::make_unique<SharedHostBuffer>(mapped, bytes, File());
}

}  // namespace switchyard
