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

namespace switchyard {

class UcxLink;

struct UcxCore {
  std::unique_ptr<UcxContext> ucx;
  Incarnation incarnation;
  SystemRng rng;  // for ring tags
  Inbox inbox;
  std::vector<UcxLink*> links;   // open ones
  std::size_t links_down = 0;    // of them, failed and not told yet
  std::size_t links_unsent = 0;  // of them, with frames that UCX would not take yet
  std::uint64_t frames_out = 0;
  std::uint64_t ring_bytes = 0;
};

}  // namespace switchyard
