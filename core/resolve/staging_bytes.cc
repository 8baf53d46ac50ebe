#include "core/resolve/staging_bytes.h"

#include <algorithm>

namespace switchyard {

StagingBytes StagingBytesPerRow(const WireFormat& format, std::int64_t hidden, DispatchMode mode) {
  const std::int64_t header = mode == DispatchMode::kLowLatency ? kLowLatencyHeaderBytes : 0;
  // Results always travel as BF16, whatever the dispatch dtype.
  return {.dispatch = RowBytesOf(format, hidden).total() + header,
          .combine = RowBytesOf(DispatchDtype::kBf16, hidden).total()};
}

std::int64_t RowsOf(const StagingRows& rows, DispatchMode mode) {
  // Normal mode sends a token once to each worker that holds any of its experts.
  const std::int64_t places =
      mode == DispatchMode::kLowLatency ? rows.top_k : std::min(rows.top_k, rows.workers);
  return rows.tokens * places;
}

StagingBytes LargerOf(const StagingBytes& a, const StagingBytes& b) {
  return {.dispatch = std::max(a.dispatch, b.dispatch), .combine = std::max(a.combine, b.combine)};
}

bool Holds(const StagingBytes& room, const StagingBytes& need) {
  return room.dispatch >= need.dispatch && room.combine >= need.combine;
}

}  // namespace switchyard
