#include "ctl/doctor/node_probe.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/unique_handle.h"
#include "model/checkpoint.h"
#include "services/config/security_files.h"
#include "services/security/certificate.h"

namespace switchyard::ctl {
namespace {

// Headers of the largest checkpoints are read in a second or two.
constexpr Duration kFilesMax = std::chrono::seconds(10);
constexpr char kSharedMemory[] = "/dev/shm";
constexpr char kStatus[] = "/proc/self/status";
// The names that worker/transport/local_socket.cc gives; tests/ctl compares them.
constexpr absl::string_view kSocketPrefix = "switchyard-";
constexpr std::size_t kSocketDigits = 32;
constexpr int kDirectoryFilesMax = 4'096;
// A socket without permissions does not listen yet; its process is gone if that lasts so long.
constexpr std::time_t kUnbornSeconds = 60;

struct FileTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle file) { ::close(file); }
};
using File = UniqueHandle<FileTraits>;

// Why a process cannot have memory that another one may map without danger; empty: it can.
std::string MemfdProblem() {
  const File file(::memfd_create("switchyard-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return absl::StrCat("memfd_create: ", std::strerror(errno));
  if (::ftruncate(file.get(), 4096) != 0) return absl::StrCat("ftruncate: ", std::strerror(errno));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return absl::StrCat("sealing: ", std::strerror(errno));
  }
  return "";
}

std::optional<std::int64_t> LimitOf(rlim_t value) {
  if (value == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

bool IsSocketName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kSocketPrefix) || name.size() != kSocketDigits) return false;
  for (const char each : name) {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(each)) == 0) return false;
  }
  return true;
}

// Whether nobody listens at the socket `path`. A path that is too long for an address was never
// bound.
bool IsDead(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int failed = socket.valid() ? ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
                                                sizeof(address))
                                    : 0;
  return failed != 0 && errno == ECONNREFUSED;
}

void LookAtSocket(const std::string& path, const std::string& name, RingDirFacts* facts) {
  struct stat status {};
  if (!IsSocketName(name) || ::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) {
    return;
  }
  const bool born = (status.st_mode & ACCESSPERMS) != 0;
  const bool dead =
      born ? IsDead(path) : std::time(nullptr) - status.st_ctim.tv_sec > kUnbornSeconds;
  if (dead) {
    facts->stale.push_back(name);
  } else {
    ++facts->live;
  }
}

std::string Join(const std::string& dir, absl::string_view name) {
  return absl::StrCat(dir, "/", name);
}

absl::Status Hangs() {
  return absl::DeadlineExceededError("the file system did not answer in time");
}

// `probe` of `what` in bounded time; `late` is what is said of one that hangs.
template <typename Facts>
Facts Bounded(const Budget& budget, Facts (*probe)(const std::string&), const std::string& what,
              Facts late) {
  const Duration most = budget.Left(kFilesMax);
  if (most <= Duration::zero()) return late;
  auto facts = Within<Facts>(most, [probe, what] { return probe(what); });
  return facts.has_value() ? *std::move(facts) : late;
}

}  // namespace

SharedMemoryFacts ProbeSharedMemory(const std::string& path) {
  SharedMemoryFacts facts;
  facts.path = path;
  facts.memfd_problem = MemfdProblem();
  struct statvfs size {};
  if (::statvfs(path.c_str(), &size) != 0) {
    facts.wrong = std::strerror(errno);
    return facts;
  }
  const auto unit = static_cast<std::int64_t>(size.f_frsize);
  facts.bytes = static_cast<std::int64_t>(size.f_blocks) * unit;
  facts.free = static_cast<std::int64_t>(size.f_bavail) * unit;
  return facts;
}

MemlockFacts ProbeMemlock() {
  MemlockFacts facts;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.soft = LimitOf(limit.rlim_cur);
    facts.hard = LimitOf(limit.rlim_max);
  } else {
    facts.soft = facts.hard = 0;
  }
  std::ifstream status(kStatus);
  for (std::string line; std::getline(status, line);) {
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, "CapEff:")) continue;
    if (!absl::SimpleHexAtoi(absl::StripAsciiWhitespace(text), &facts.capabilities)) {
      facts.capabilities = 0;
    }
  }
  return facts;
}

RingDirFacts ProbeRingDir(const std::string& dir) {
  RingDirFacts facts;
  facts.dir = dir;
  std::error_code failed;
  if (!std::filesystem::is_directory(dir, failed)) {
    facts.wrong = "there is no such folder";
    return facts;
  }
  if (::access(dir.c_str(), W_OK | X_OK) != 0) {
    facts.wrong = "this user may not make files in it";
    return facts;
  }
  int files = 0;
  for (std::filesystem::directory_iterator at(dir, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (++files > kDirectoryFilesMax) break;
    LookAtSocket(at->path().string(), at->path().filename().string(), &facts);
  }
  return facts;
}

CheckpointFacts ProbeCheckpoint(const std::string& dir) {
  CheckpointFacts facts;
  facts.dir = dir;
  const absl::StatusOr<std::unique_ptr<Checkpoint>> opened = Checkpoint::Open(dir);
  facts.status = opened.status();
  if (!opened.ok()) return facts;
  const Checkpoint& checkpoint = **opened;
  for (const std::string& name : checkpoint.names()) {
    const TensorInfo* tensor = checkpoint.Find(name);
    ++facts.tensors;
    facts.bytes += tensor == nullptr ? 0 : static_cast<std::int64_t>(tensor->bytes);
  }
  facts.warnings = checkpoint.warnings();
  return facts;
}

OwnCertificateFacts ProbeCertificate(const std::string& dir) {
  OwnCertificateFacts facts;
  facts.dir = dir;
  facts.now_s = std::time(nullptr);
  if (dir.empty()) return facts;
  const TlsFiles files = TlsFilesIn(dir);
  const absl::StatusOr<TlsMaterial> material = ReadTlsFiles(files);
  facts.status = material.status();
  if (!material.ok()) return facts;
  const absl::StatusOr<CertificateFacts> read = CheckTlsMaterial(*material, files);
  facts.status = read.status();
  if (!read.ok()) return facts;
  facts.facts = *read;
  facts.issuer = CheckChain(*material, files);
  const absl::StatusOr<IdentityTable> table = ReadIdentities(Join(dir, kIdentitiesFile));
  facts.status = table.status();
  facts.known = table.ok() && table->Find(read->id) != nullptr;
  return facts;
}

NodeFacts ProbeNode(const NodeQuestions& questions, const Budget& budget) {
  NodeFacts facts;
  SharedMemoryFacts no_memory;
  no_memory.path = kSharedMemory;
  no_memory.wrong = std::string(Hangs().message());
  facts.shared_memory = Bounded(budget, &ProbeSharedMemory, kSharedMemory, no_memory);
  facts.memlock = ProbeMemlock();
  for (const std::string& dir : questions.ring_dirs) {
    RingDirFacts late;
    late.dir = dir;
    late.wrong = std::string(Hangs().message());
    facts.ring_dirs.push_back(Bounded(budget, &ProbeRingDir, dir, late));
  }
  for (const std::string& dir : questions.checkpoints) {
    CheckpointFacts late;
    late.dir = dir;
    late.status = Hangs();
    facts.checkpoints.push_back(Bounded(budget, &ProbeCheckpoint, dir, late));
  }
  OwnCertificateFacts late;
  late.dir = questions.tls_dir;
  late.status = Hangs();
  facts.certificate = Bounded(budget, &ProbeCertificate, questions.tls_dir, late);
  return facts;
}

}  // namespace switchyard::ctl
