// Reads the facts of this machine or Pod for 'syctl doctor'. Needs no network. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "ctl/doctor/facts.h"
#include "ctl/doctor/within.h"

namespace switchyard::ctl {

// The files to read.
struct NodeQuestions {
  std::vector<std::string> ring_dirs;
  std::vector<std::string> checkpoints;
  std::string tls_dir;  // empty: none
};

// Each part is read within ten seconds and within `budget`; what hangs is said to hang.
NodeFacts ProbeNode(const NodeQuestions& questions, const Budget& budget);

// Its parts. None waits for anything but the file system.
SharedMemoryFacts ProbeSharedMemory(const std::string& path);
MemlockFacts ProbeMemlock();
// Looks at 4,096 files at most. Connects to the sockets, as the transport does before it removes
// dead ones; nothing is changed.
RingDirFacts ProbeRingDir(const std::string& dir);
CheckpointFacts ProbeCheckpoint(const std::string& dir);
OwnCertificateFacts ProbeCertificate(const std::string& dir);

}  // namespace switchyard::ctl
