#include "ctl/doctor/node_checks.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "core/base/amount_text.h"
#include "core/base/units.h"

namespace switchyard::ctl {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// A limit below this holds the rings of few sessions: with RDMA all of them are locked.
constexpr std::int64_t kLockedBytesMin = std::int64_t{1} << 30;
constexpr std::size_t kNamesShown = 4;
constexpr std::int64_t kDay = 86400;

// The numbers of linux/capability.h.
struct Capability {
  unsigned bit;
  const char* name;
};
constexpr unsigned kIpcLock = 14;
// Those that matter here: locked memory, and socket filters on kernels that ask for it.
constexpr std::array<Capability, 2> kCapabilities{{{12, "NET_ADMIN"}, {kIpcLock, "IPC_LOCK"}}};

bool Has(std::uint64_t capabilities, unsigned bit) { return ((capabilities >> bit) & 1U) != 0; }

// Rounded down, so that a size never looks like more than it is.
std::string MiBText(std::int64_t bytes) {
  return bytes < kMiB ? BytesText(bytes) : absl::StrCat(bytes / kMiB, "MiB");
}

std::string LimitText(const std::optional<std::int64_t>& bytes) {
  return bytes.has_value() ? BytesText(*bytes) : "unlimited";
}

std::string CapabilitiesText(std::uint64_t capabilities) {
  std::vector<std::string> names;
  for (const Capability& each : kCapabilities) {
    if (Has(capabilities, each.bit)) names.emplace_back(each.name);
  }
  return absl::StrFormat(
      "CapEff %016x (%s)", capabilities,
      names.empty() ? "neither NET_ADMIN nor IPC_LOCK" : absl::StrJoin(names, ", "));
}

std::string DateText(std::int64_t unix_s) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(unix_s), absl::UTCTimeZone());
}

// Some messages begin with the folder's name already.
std::string WrongText(const CheckpointFacts& facts) {
  const absl::string_view message = facts.status.message();
  return absl::StartsWith(message, facts.dir) ? std::string(message)
                                              : absl::StrCat(facts.dir, ": ", message);
}

constexpr char kMoreSharedMemory[] =
    "enlarge it: the pool's shm.sizeLimit in the chart, sizeLimit of the emptyDir in a Pod, "
    "--shm-size of a container, mount -o remount,size= on a machine";

}  // namespace

Check CheckSharedMemory(const SharedMemoryFacts& facts, const NodeNeeds& needs) {
  const absl::string_view name = kSharedMemoryCheck;
  if (!facts.memfd_problem.empty()) {
    return Warning(name,
                   absl::StrCat("processes cannot share memory: ", facts.memfd_problem,
                                "; rows to workers of this machine go through messages"),
                   "let the container's seccomp profile allow memfd_create with sealing");
  }
  if (!facts.wrong.empty()) {
    const std::string what = absl::StrCat(facts.path, ": ", facts.wrong);
    if (needs.shm_bytes > 0) {
      return Failure(name, what, absl::StrCat("mount a file system in memory there"));
    }
    return Skipped(name, absl::StrCat(what, "; rings need none"),
                   "nothing, unless a library of the engine needs it: then state --shm-bytes");
  }
  const std::string size = facts.bytes == 0 ? absl::StrCat(facts.path, " without a limit")
                                            : absl::StrCat(facts.path, " of ", MiBText(facts.bytes),
                                                           ", ", MiBText(facts.free), " free");
  if (facts.bytes == 0 || needs.shm_bytes <= facts.free) {
    return Good(name, absl::StrCat(size, "; rings lie in memory without a name and need none"));
  }
  const std::string need = absl::StrCat(size, "; ", BytesText(needs.shm_bytes), " are needed");
  if (needs.shm_bytes > facts.bytes) return Failure(name, need, kMoreSharedMemory);
  return Failure(
      name, need,
      absl::StrCat("remove files that nobody uses from ", facts.path, ", or ", kMoreSharedMemory));
}

Check CheckMemlock(const MemlockFacts& facts, const NodeNeeds& needs) {
  const std::string found =
      absl::StrCat(LimitText(facts.soft), " may be locked, at most ", LimitText(facts.hard), "; ",
                   CapabilitiesText(facts.capabilities));
  const bool unlimited = !facts.soft.has_value() || Has(facts.capabilities, kIpcLock);
  if (!needs.rdma || unlimited) return Good(kMemlockCheck, found);
  const char* next =
      "LimitMEMLOCK=infinity in the unit, ulimit -l unlimited in the shell, or the capability "
      "IPC_LOCK for the container, whose namespace must then allow it";
  if (*facts.soft < kLockedBytesMin) {
    return Failure(kMemlockCheck, absl::StrCat(found, "; RDMA locks all memory that it sends from"),
                   next);
  }
  return Warning(kMemlockCheck,
                 absl::StrCat(found, "; RDMA locks all rings, and sessions end where that is over"),
                 next);
}

Check CheckRingDir(const RingDirFacts& facts) {
  if (!facts.wrong.empty()) {
    return Failure(kRingSocketsCheck, absl::StrCat(facts.dir, ": ", facts.wrong),
                   "create it, writable for the users of the worker and of the engine, and mount "
                   "the same one into both");
  }
  const std::string live = absl::StrCat(
      facts.live, facts.live == 1 ? " process listens in " : " processes listen in ", facts.dir);
  if (facts.stale.empty()) return Good(kRingSocketsCheck, live);
  std::vector<std::string> shown = facts.stale;
  if (shown.size() > kNamesShown) shown.resize(kNamesShown);
  return Warning(kRingSocketsCheck,
                 absl::StrCat(CountText(static_cast<std::int64_t>(facts.stale.size()), "socket"),
                              " of processes that are gone: ", absl::StrJoin(shown, ", "),
                              shown.size() < facts.stale.size() ? ", ..." : "", "; ", live),
                 absl::StrCat("the next process that listens in ", facts.dir,
                              " removes them; without one, remove these files"));
}

Check CheckCheckpoint(const CheckpointFacts& facts) {
  if (absl::IsDeadlineExceeded(facts.status)) {
    return Failure(kCheckpointCheck, WrongText(facts),
                   "look at the disk or the network file system, or give more --timeout");
  }
  if (!facts.status.ok()) {
    return Failure(kCheckpointCheck, WrongText(facts),
                   "copy the checkpoint again, whole, and check the volume that is mounted there");
  }
  const std::string found =
      absl::StrCat(facts.dir, " is complete: ", facts.tensors, " tensors, ", MiBText(facts.bytes));
  if (facts.warnings.empty()) return Good(kCheckpointCheck, found);
  return Warning(kCheckpointCheck, absl::StrCat(found, "; ", facts.warnings.front()),
                 "nothing, if the checkpoint came like that");
}

Check CheckCertificate(const OwnCertificateFacts& facts) {
  const absl::string_view name = kCertificateCheck;
  if (facts.dir.empty()) {
    return Skipped(name, "no certificate is used, and nothing is encrypted",
                   "--tls-dir, where processes have certificates");
  }
  const char* renew =
      "issue a new one ('syctl certs ensure', or your authority); running processes "
      "see new files by themselves";
  if (!facts.status.ok()) {
    return Failure(name, std::string(facts.status.message()),
                   "ca.crt, tls.crt, tls.key and identities.yaml have to be there and to belong "
                   "together; 'syctl certs ensure' makes them");
  }
  const CertificateFacts& own = facts.facts;
  const std::string who = absl::StrCat(facts.dir, ": ", own.id);
  if (own.not_after_s <= facts.now_s) {
    return Failure(name, absl::StrCat(who, " expired at ", DateText(own.not_after_s)), renew);
  }
  if (own.not_before_s > facts.now_s) {
    return Failure(name,
                   absl::StrCat(who, " is not valid before ", DateText(own.not_before_s),
                                ", and here it is ", DateText(facts.now_s)),
                   "set the clock of this machine; if it is right, issue the certificate again");
  }
  if (!facts.issuer.ok()) {
    return Failure(
        name, absl::StrCat(who, ": ", facts.issuer.message()),
        "put the authority that issued tls.crt into ca.crt, beside those that are there");
  }
  if (!facts.known) {
    return Failure(name, absl::StrCat(who, " is not in identities.yaml"),
                   "add a row with that id and its roles to the identities.yaml of all processes");
  }
  const std::int64_t left = own.not_after_s - facts.now_s;
  const std::string until = absl::StrCat(
      who, " is valid until ", DateText(own.not_after_s), ", for ",
      left < kDay ? absl::StrCat(left / 3600, " hours") : absl::StrCat(left / kDay, " days"));
  if (left < (own.not_after_s - own.not_before_s) / 4) return Warning(name, until, renew);
  return Good(name, until);
}

std::vector<Check> NodeChecks(const NodeFacts& facts, const NodeNeeds& needs) {
  std::vector<Check> checks{CheckSharedMemory(facts.shared_memory, needs),
                            CheckMemlock(facts.memlock, needs)};
  for (const RingDirFacts& each : facts.ring_dirs) checks.push_back(CheckRingDir(each));
  if (facts.ring_dirs.empty()) {
    checks.push_back(Skipped(kRingSocketsCheck,
                             "no folder of sockets is named, and other names are not left behind",
                             "--ring-dir, where the worker and the engine have one"));
  }
  for (const CheckpointFacts& each : facts.checkpoints) checks.push_back(CheckCheckpoint(each));
  if (facts.checkpoints.empty()) {
    checks.push_back(Skipped(kCheckpointCheck, "no checkpoint is named",
                             "--checkpoint DIR, to look for missing and short files"));
  }
  checks.push_back(CheckCertificate(facts.certificate));
  return checks;
}

}  // namespace switchyard::ctl
