// The lines of 'syctl doctor': what was looked at, what was found and what to do. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace switchyard::ctl {

enum class Verdict : std::uint8_t {
  kOk,
  kWarn,  // it works, but less well or not for long
  kFail,  // what depends on it cannot work
  kSkip   // not applicable, or an earlier check has to be right first
};

// Names of the checks, as scripts read them.
inline constexpr char kSharedMemoryCheck[] = "shared-memory";
inline constexpr char kMemlockCheck[] = "memlock";
inline constexpr char kRingSocketsCheck[] = "ring-sockets";
inline constexpr char kCheckpointCheck[] = "checkpoint";
inline constexpr char kCertificateCheck[] = "certificate";
inline constexpr char kDnsCheck[] = "dns";
inline constexpr char kCoordinatorCheck[] = "coordinator";
inline constexpr char kClockCheck[] = "clock";
inline constexpr char kWorkersCheck[] = "workers";
inline constexpr char kVersionsCheck[] = "versions";
inline constexpr char kWorkerDnsCheck[] = "worker-dns";
inline constexpr char kWorkerPortsCheck[] = "worker-ports";

// Where a remedy is explained: a page of the documentation and a heading in it.
struct CheckPage {
  const char* check;
  const char* page;
};
// All checks, in the order of the output. Those from `dns` on need a network.
inline constexpr CheckPage kCheckPages[] = {
    {kSharedMemoryCheck, "docs/DEPLOYMENT.md#shared-memory-between-containers"},
    {kMemlockCheck, "docs/OPERATIONS.md#checkup"},
    {kRingSocketsCheck, "docs/DEPLOYMENT.md#shared-memory-between-containers"},
    {kCheckpointCheck, "docs/MODELS.md#which-can-be-deployed"},
    {kCertificateCheck, "docs/SECURITY.md#turn-on-mutual-tls"},
    {kDnsCheck, "docs/SEVERAL_HOSTS.md#who-connects-to-whom"},
    {kCoordinatorCheck, "docs/OPERATIONS.md#probes"},
    {kClockCheck, "docs/SECURITY.md#turn-on-mutual-tls"},
    {kWorkersCheck, "docs/OPERATIONS.md#faults"},
    {kVersionsCheck, "docs/UPGRADE.md#what-has-to-match"},
    {kWorkerDnsCheck, "docs/SEVERAL_HOSTS.md#who-connects-to-whom"},
    {kWorkerPortsCheck, "docs/SEVERAL_HOSTS.md#what-a-blocked-connection-looks-like"},
};

struct Check {
  std::string name;  // one of kCheckPages; several lines may have one name
  Verdict verdict = Verdict::kOk;
  std::string found;
  std::string next;  // the remedy; empty only where all is well
};

// A check of each verdict. Texts of peers and of files are made printable and cut.
Check Good(absl::string_view name, std::string found);
Check Warning(absl::string_view name, std::string found, std::string next);
Check Failure(absl::string_view name, std::string found, std::string next);
Check Skipped(absl::string_view name, std::string found, std::string next);

// "OK", "WARN", "FAIL" or "SKIP".
absl::string_view VerdictName(Verdict verdict);
// The page of a check; empty for a name that is none.
absl::string_view PageOf(absl::string_view name);
// How many of the checks have that verdict.
std::size_t CountOf(const std::vector<Check>& checks, Verdict verdict);

// A table with one row for each check; the last column is wrapped to `width`, 0: it is not.
std::string ChecksText(const std::vector<Check>& checks, std::size_t width);
// {"checks": [{"check", "state", "found", "next", "page"}], "failed", "warned"}
nlohmann::ordered_json ChecksJson(const std::vector<Check>& checks);

}  // namespace switchyard::ctl
