// How much a worker has done for one attachment of a session. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"

namespace switchyard {

// A worker's counters for one attachment since it was made. They only grow, so two readings give
// the load between them.
struct AttachmentCounters {
  SessionId session;
  std::string worker_id;
  std::string path;                         // how rows travel to the worker
  std::uint64_t rows = 0;                   // rows received (normal: a token counts once)
  std::uint64_t request_payload_bytes = 0;  // wire bytes of rows and scales received
  std::uint64_t reply_payload_bytes = 0;    // wire bytes of rows sent back
  std::uint64_t frames = 0;
  std::uint64_t nan_rows = 0;  // rows answered with NaN, for a NaN in x or in a weight
  // The load of one expert, and its calibration figures.
  struct Hit {
    LayerId layer;
    ExpertId expert;
    std::uint64_t rows = 0;  // pairs of a row and this expert
    // The largest finite magnitudes of the rows, and of the values that enter down, in a session
    // that records them. 0: not recorded.
    float inputs_amax = 0;
    float middle_amax = 0;
    friend bool operator==(const Hit&, const Hit&) = default;
  };
  std::vector<Hit> hits;  // ascending (layer, expert), rows > 0
  friend bool operator==(const AttachmentCounters&, const AttachmentCounters&) = default;
};

}  // namespace switchyard
