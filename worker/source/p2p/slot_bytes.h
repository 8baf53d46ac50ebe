// How large the slots of an attachment's two rings have to be.
//
// A session is of one model, width and mode, and its rings are its own: what staging is keyed by.
// Requests are sized from the wire formats that the plan's layers have towards that worker, replies
// from BF16 rows, each by itself: a layer's FP8 rows halve the ring of requests alone.
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "core/resolve/staging_bytes.h"
#include "worker/source/p2p/bound_plan.h"

namespace switchyard {

// Of one slot, header and metadata included: `dispatch` holds a chunk of `chunk_rows` rows of any
// layer of `binding` for `worker`, `combine` its answer or an error. What an expert's move to
// another worker changes (metadata of local slots) is counted at its most, so that of all changes
// of a plan only other wire formats or another mode can need larger slots.
StagingBytes SlotBytesOf(const BoundPlan& binding, WorkerOrdinal worker, std::uint32_t chunk_rows);

}  // namespace switchyard
