// Judges the facts of one machine or Pod for 'syctl doctor'; none of it needs a network. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "ctl/doctor/check.h"
#include "ctl/doctor/facts.h"

namespace switchyard::ctl {

// The caller says what the node is for.
struct NodeNeeds {
  std::int64_t shm_bytes = 0;  // in /dev/shm; 0: nothing
  bool rdma = false;           // memory will be registered with a network card
};

Check CheckSharedMemory(const SharedMemoryFacts& facts, const NodeNeeds& needs);
Check CheckMemlock(const MemlockFacts& facts, const NodeNeeds& needs);
Check CheckRingDir(const RingDirFacts& facts);
Check CheckCheckpoint(const CheckpointFacts& facts);
Check CheckCertificate(const OwnCertificateFacts& facts);

// All of them, in the order of kCheckPages.
std::vector<Check> NodeChecks(const NodeFacts& facts, const NodeNeeds& needs);

}  // namespace switchyard::ctl
