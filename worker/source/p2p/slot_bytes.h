// How large the slots of an attachment's two rings have to be.
//
// A session has one model, width and mode, and its rings serve nothing else. Requests are sized
// from the wire formats of the plan's layers toward that worker, replies from BF16 rows, each ring
// by itself: FP8 rows halve only the ring of requests.
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "core/resolve/staging_bytes.h"
#include "worker/source/p2p/bound_plan.h"

namespace switchyard {

// The bytes of one slot, header and metadata included: `dispatch` holds a chunk of `chunk_rows`
// rows of any layer of `bound` for `worker`, `combine` its answer or an error. The metadata of
// local slots, which grows when experts move to the worker, is counted at its most, so that only
// other wire formats or another mode can make a later plan need larger slots.
StagingBytes SlotBytesOf(const BoundPlan& bound, WorkerOrdinal worker, std::uint32_t chunk_rows);

}  // namespace switchyard
