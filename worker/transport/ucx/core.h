// State that a UCX transport shares with its links. The transport owns it; not thread-safe. A
// struct of its own, so that links do not depend on the whole transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/ids.h"
#include "core/rng.h"
#include "worker/transport/inbox.h"
#include "worker/transport/memory_thread.h"
#include "worker/transport/ring_server.h"
#include "worker/transport/ucx/admission.h"
#include "worker/transport/ucx/context.h"
#include "worker/transport/ucx/link_memory.h"

namespace switchyard {

class UcxLink;

// Members are used by both sides; counters change only together with the state that they count.
struct UcxCore {
  std::unique_ptr<UcxContext> ucx;  // destroyed last, because links use its workers until closed
  UcxAdmission admission;
  Duration admission_time{};  // at most, for each peer
  SteadyClock clock;          // for admissions
  Incarnation incarnation;
  SystemRng rng;  // for ring keys
  UcxLinkMemory::Place place;
  std::unique_ptr<RingServer> ring_server;  // from the first ring that it serves
  SocketName ring_socket;                   // of the server
  Inbox inbox;
  std::vector<UcxLink*> links;    // the open ones
  std::size_t links_down = 0;     // links that failed and whose OnLinkDown is still due
  std::size_t links_unsent = 0;   // frames and greetings of links that UCX could not accept yet
  std::size_t links_waiting = 0;  // links whose peers have not greeted yet
  std::uint64_t frames_out = 0;
  std::uint64_t ring_bytes = 0;
  MemoryThread memory_thread;  // last, because its work uses what is above
};

}  // namespace switchyard
