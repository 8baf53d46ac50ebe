// The memory that rows take between being encoded and sent, and between being received and summed.
//
// Dispatch and combine are sized separately, each from the bytes that really cross the wire: a
// quantized dtype makes dispatch smaller and leaves combine, which is always BF16, as it is.
#pragma once

#include <cstdint>

#include "core/dispatch_mode.h"
#include "core/format/wire_format.h"

namespace switchyard {

// In front of each row of a low_latency message (DeepEP V1: source index, three reserved ints).
inline constexpr std::int64_t kLowLatencyHeaderBytes = 16;

// Bytes in each direction; of a row, a step or a buffer, as the function says. Pure; thread-safe.
struct StagingBytes {
  std::int64_t dispatch = 0;
  std::int64_t combine = 0;
  // The size of one buffer that serves both in turn.
  [[nodiscard]] std::int64_t shared() const { return dispatch > combine ? dispatch : combine; }
  // The size of two buffers.
  [[nodiscard]] std::int64_t separate() const { return dispatch + combine; }
  friend bool operator==(const StagingBytes&, const StagingBytes&) = default;
};

// The bytes of one row in each direction.
StagingBytes StagingBytesPerRow(const WireFormat& format, std::int64_t hidden, DispatchMode mode);

// The rows that are staged at a time: `tokens` of one step (low_latency) or one chunk (normal).
struct StagingRows {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t workers = 0;
};
// low_latency sends a row to each of top-k experts, normal a row to each worker that holds any.
std::int64_t RowsOf(const StagingRows& rows, DispatchMode mode);

// The size that holds either. A buffer that layers share is as large as the largest of them needs,
// in each direction; it may grow but never shrinks, because a step may be in flight.
StagingBytes LargerOf(const StagingBytes& a, const StagingBytes& b);
// True when `room` suffices for `need` in both directions.
bool Holds(const StagingBytes& room, const StagingBytes& need);

}  // namespace switchyard
