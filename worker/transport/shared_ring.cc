#include "worker/transport/shared_ring.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <linux/magic.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/shared_stores.h"

namespace switchyard {
namespace {

// Pages are made, touched and freed in pieces, with the CPU given up in between: a step that waits
// for it, or for the kernel's lock on this process's mappings, waits for a piece and not for all.
constexpr std::size_t kPieceOfPages = std::size_t{256} << 10;
// Only shown by tools; it is not a path.
constexpr const char* kFileName = "switchyard-ring";
// Shrinking would turn the peer's next store into SIGBUS; the last seal makes the others final.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status NoMemory(std::size_t bytes, absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   absl::StrCat("transport: no memory for a ring of ", bytes, " bytes (", what,
                                " failed with errno ", errno,
                                "); use fewer or smaller slots, or raise the memory limit"));
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
    if (at % kPieceOfPages == 0) std::this_thread::yield();
    static_cast<void>(
        __atomic_load_n(reinterpret_cast<const unsigned char*>(&memory[at]), __ATOMIC_RELAXED));
  }
}

// Only a memfd has seals.
absl::Status CheckFile(const Descriptor& file, std::size_t bytes) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0) return NotMapped("the descriptor is not that of a ring");
  if ((seals & F_SEAL_SHRINK) == 0) return NotMapped("the file is not sealed against shrinking");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    return NotMapped("the file does not have the size that the peer offered");
  }
  return absl::OkStatus();
}

// The peer's pipe, opened anew: the peer shares the flags of the descriptor that it has sent, and
// could make a write to that block. For reading too, so that a write never raises SIGPIPE. The path
// leads to this process's own descriptor, in every PID namespace.
absl::StatusOr<Descriptor> OpenWake(const Descriptor& wake) {
  struct statfs kind {};
  if (::fstatfs(wake.get(), &kind) != 0 || kind.f_type != PIPEFS_MAGIC) {
    return NotMapped("the descriptor for waking the peer is not that of a pipe");
  }
  Descriptor opened(::open(absl::StrCat("/proc/self/fd/", wake.get()).c_str(),
                           O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.valid()) {
    return NotMapped(absl::StrCat("opening the pipe for waking the peer failed with errno ", errno,
                                  "; check that /proc is mounted"));
  }
  return opened;
}

}  // namespace

RingPages::~RingPages() {
  for (std::size_t at = 0; at < memory_.size(); at += kPieceOfPages) {
    ::munmap(&memory_[at], std::min(kPieceOfPages, memory_.size() - at));
    std::this_thread::yield();
  }
}

absl::StatusOr<RingPages> AllocatePages(std::size_t bytes) {
  if (bytes == 0) return RingPages();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NoMemory(bytes, "mmap");
  RingPages pages({static_cast<std::byte*>(memory), bytes});
  // For the same reason as MakePresent. Not by MAP_POPULATE, which is one piece.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    if (at % kPieceOfPages == 0) std::this_thread::yield();
    __atomic_store_n(reinterpret_cast<unsigned char*>(&pages.memory()[at]), 0, __ATOMIC_RELAXED);
  }
  return pages;
}

absl::StatusOr<InboundRing> InboundRing::Allocate(Kind kind, const RingShape& shape,
                                                  std::uint64_t tag) {
  InboundRing ring;
  if (kind == Kind::kMapped) {
    SY_RETURN_IF_ERROR(ring.AllocateMapped(shape, tag));
  } else {
    SY_ASSIGN_OR_RETURN(ring.pages_, AllocatePages(shape.bytes()));
  }
  ring.bytes_ = shape.bytes();
  return ring;
}

absl::Status InboundRing::AllocateMapped(const RingShape& shape, std::uint64_t tag) {
  const std::size_t bytes = shape.bytes() + BellBytes(shape.slots);
  // CLOEXEC, because a child process must not inherit the descriptor.
  Descriptor file(::memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return NoMemory(bytes, "memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return NoMemory(bytes, "ftruncate");
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory(bytes, "sealing");
  SY_ASSIGN_OR_RETURN(pages_, MapFile(file.get(), bytes));
  // Reserve the memory now: a lack of it is an error here, but would be a SIGBUS at first use.
  for (std::size_t at = 0; at < bytes; at += kPieceOfPages) {
    if (::fallocate(file.get(), 0, static_cast<off_t>(at),
                    static_cast<off_t>(std::min(kPieceOfPages, bytes - at))) != 0) {
      return NoMemory(bytes, "fallocate");
    }
    std::this_thread::yield();
  }
  MakePresent(pages_.memory());
  bells_ = BellOwner(pages_.memory().subspan(shape.bytes()), shape.slots, tag);
  file_ = std::move(file);
  return absl::OkStatus();
}

InboundRing& InboundRing::operator=(InboundRing&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(pages_, other.pages_);
  std::swap(bytes_, other.bytes_);
  std::swap(bells_, other.bells_);
  return *this;
}

InboundRing::~InboundRing() {
  if (mapped()) bells_.SetState(BellState::kClosed);
}

absl::StatusOr<PeerRing> PeerRing::Map(RingParts parts, const RingShape& shape, std::uint64_t tag) {
  const std::size_t bytes = shape.bytes() + BellBytes(shape.slots);
  SY_RETURN_IF_ERROR(CheckFile(parts.file, bytes));
  SY_ASSIGN_OR_RETURN(Descriptor wake, OpenWake(parts.wake));
  // The mapping keeps the memory alive, so the file can be closed on return.
  SY_ASSIGN_OR_RETURN(RingPages pages, MapFile(parts.file.get(), bytes));
  MakePresent(pages.memory());
  const BellPeer bells(pages.memory().subspan(shape.bytes()), shape.slots);
  if (bells.tag() != tag) return NotMapped("its memory does not contain the offered tag");
  return PeerRing(std::move(pages), shape.bytes(), bells, std::move(wake));
}

bool PeerRing::Ring(std::uint32_t slot) {
  PublishStores();
  const BellPeer::Rung rung = bells_.Ring(slot);
  if (rung == BellPeer::Rung::kWake) {
    constexpr std::byte kWake{0};
    // The only failure that can happen is a full pipe, which wakes its reader as well.
    [[maybe_unused]] const auto written = ::write(wake_.get(), &kWake, sizeof(kWake));
  }
  return rung != BellPeer::Rung::kRefused;
}

}  // namespace switchyard
