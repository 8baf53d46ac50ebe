// What a UCX transport and its links share. Owned by the transport; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ids.h"
#include "core/rng.h"
#include "worker/transport/inbox.h"
#include "worker/transport/ucx/context.h"
#include "worker/transport/ucx/outbox.h"

namespace switchyard {

class UcxLink;

struct UcxCore {
  std::unique_ptr<UcxContext> ucx;
  Incarnation incarnation;
  SystemRng rng;  // for ring tags
  Inbox inbox;
  std::vector<UcxLink*> links;  // open ones
  std::size_t links_down = 0;   // of them, failed and not told yet
  // Of closed links, until UCX lets go of their memory.
  std::vector<std::unique_ptr<UcxOutbox>> limbo;
  std::uint64_t frames_out = 0;
  std::uint64_t ring_bytes = 0;

  // Lets UCX work until `outbox` is free of it, `rounds` times at most; true if it is.
  bool Settle(const UcxOutbox& outbox, int rounds) const {
    for (int i = 0; i < rounds && outbox.pending() > 0; ++i) ucp_worker_progress(ucx->worker());
    return outbox.pending() == 0;
  }
};

}  // namespace switchyard
