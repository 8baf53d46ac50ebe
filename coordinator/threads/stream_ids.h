// Ids of what is open at the coordinator: a worker's stream, a watch, a request without an answer.
// The driver (or the simulation) assigns them; each is unique in its life. 0: none.
#pragma once

#include <cstdint>

#include "core/ids.h"

namespace switchyard {

// The stream of one worker, from its connection to its end. A worker that connects again has a new
// one.
using StreamId = StrongId<struct StreamTag, std::uint64_t>;
using WatchId = StrongId<struct WatchTag, std::uint64_t>;
using RequestId = StrongId<struct RequestTag, std::uint64_t>;
// One write to the store; the coordinator that sends it assigns the id, ascending.
using WriteId = StrongId<struct WriteTag, std::uint64_t>;

}  // namespace switchyard
