// The facts that 'syctl doctor' looks at, as plain data. Probes (node_probe.h, service_probe.h)
// read it from the machine and the service; checks (node_checks.h, service_checks.h) judge it.
// Tests plant it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "services/security/certificate.h"

namespace switchyard::ctl {

// A file system in memory, and memory without a name, in which rows travel.
struct SharedMemoryFacts {
  std::string path;           // "/dev/shm"
  std::string wrong;          // why it cannot be used; empty: nothing is wrong
  std::int64_t bytes = 0;     // its size; 0: no limit of its own
  std::int64_t free = 0;      // of these
  std::string memfd_problem;  // why the kernel gives no sealed memory; empty: it does
};

struct MemlockFacts {
  std::optional<std::int64_t> soft;  // RLIMIT_MEMLOCK in bytes; unset: unlimited
  std::optional<std::int64_t> hard;
  std::uint64_t capabilities = 0;  // the effective set of this process, CapEff
};

// A folder of --ring-dir.
struct RingDirFacts {
  std::string dir;
  std::string wrong;               // why it cannot be used; empty: nothing is wrong
  std::size_t live = 0;            // sockets to which a process listens
  std::vector<std::string> stale;  // names of those whose process is gone
};

// A checkpoint folder, read as far as a coordinator reads it before it hashes weights.
struct CheckpointFacts {
  std::string dir;
  absl::Status status;
  std::size_t tensors = 0;
  std::int64_t bytes = 0;             // of the tensors
  std::vector<std::string> warnings;  // whole sentences
};

// The certificate of --tls-dir.
struct OwnCertificateFacts {
  std::string dir;         // empty: none is asked for, and nothing is encrypted
  absl::Status status;     // of reading and parsing the four files
  CertificateFacts facts;  // where `status` is OK
  absl::Status issuer;     // whether an authority of ca.crt has issued it
  bool known = false;      // its id is in the table of identities
  std::int64_t now_s = 0;  // Unix time
};

struct NodeFacts {
  SharedMemoryFacts shared_memory;
  MemlockFacts memlock;
  std::vector<RingDirFacts> ring_dirs;
  std::vector<CheckpointFacts> checkpoints;
  OwnCertificateFacts certificate;
};

// A name and what it resolves to.
struct NameFacts {
  std::string host;
  std::string wrong;          // empty: it resolves
  std::size_t addresses = 0;  // that it resolves to
  std::string first;          // of these
};

enum class ServingState : std::uint8_t { kUnknown, kServing, kNotServing };

struct CoordinatorFacts {
  absl::Status status;  // of GetVersion
  std::string next;     // the next thing to try where that is an error; may be empty
  std::string version;
  std::uint32_t protocol = 0;
  ServingState ready = ServingState::kUnknown;  // of its health service
};

struct WorkerFacts {
  std::string id;
  std::string endpoint;
  std::string state;    // as 'syctl get workers' writes it
  std::string problem;  // as the coordinator says; may be empty
  std::uint32_t protocol = 0;
  bool asked = false;        // its port; false: beyond the bound, or no time was left
  absl::Status answer;       // of its port
  std::string version = {};  // empty: it has not said
};

// The facts of a service, learned over the network. Later parts are not set where earlier ones
// failed.
struct ServiceFacts {
  std::string target;  // "host:port"
  NameFacts name;
  std::optional<CoordinatorFacts> coordinator;
  std::optional<absl::Status> list;     // of ListWorkers
  std::vector<WorkerFacts> workers;     // all that it knows
  std::vector<NameFacts> worker_names;  // each host once
  std::size_t unresolved = 0;  // hosts that were not looked up: beyond the bound, or no time left
  std::optional<std::int64_t> newest_event_s;  // Unix time at the coordinator
  std::int64_t now_s = 0;                      // Unix time here, taken after it
  std::string own_version;
  std::uint32_t own_protocol = 0;
};

}  // namespace switchyard::ctl
