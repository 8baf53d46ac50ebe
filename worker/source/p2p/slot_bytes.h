// How large the slots of an attachment's two rings have to be.
//
// A session has one model, width and mode, and its rings serve nothing else. Requests are sized
// from the wire formats of the plan's layers toward that worker, replies from BF16 rows, each ring
// by itself: FP8 rows halve only the ring of requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ids.h"
#include "core/resolve/staging_bytes.h"
#include "core/session_messages.h"
#include "worker/source/p2p/bound_plan.h"

namespace switchyard {

// Bounds on the rows of a chunk, and so on a slot.
struct ChunkBounds {
  std::uint32_t rows_max = 0;
  std::uint32_t credits = 0;  // slots of each attachment
  // The replies' rows in all slots of a session take at most this. A session over many workers
  // would otherwise take 117 MiB at each of them with hidden 7168.
  std::size_t ring_bytes_max = 0;
};

// Rows of a chunk for the whole life of a session: a larger batch travels in several chunks, so
// that this decides about memory and messages, not about what a session can do. At most `rows_max`,
// the session's largest batch, twice what a worker of the granted plan gets of that batch where
// routing is uniform, and what `ring_bytes_max` leaves; at least kChunkRowsMin of the former two,
// and at least a token's rows, which travel together.
std::uint32_t ChunkRowsOf(const SessionGrant& grant, const ChunkBounds& bounds);

// Fewer rows cost more for their message than for themselves.
inline constexpr std::uint32_t kChunkRowsMin = 16;

// The bytes of one slot, header and metadata included: `dispatch` holds a chunk of `chunk_rows`
// rows of any layer of `bound` for `worker`, `combine` its answer or an error. The metadata of
// local slots, which grows when experts move to the worker, is counted at its most, so that only
// other wire formats or another mode can make a later plan need larger slots.
StagingBytes SlotBytesOf(const BoundPlan& bound, WorkerOrdinal worker, std::uint32_t chunk_rows);

}  // namespace switchyard
