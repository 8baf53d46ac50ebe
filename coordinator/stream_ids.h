// Names of what is open at the coordinator: a worker's stream, a watch, a request that waits.
// Given out by the driver (or the simulation), unique in its life. 0: none.
#pragma once

#include <cstdint>

#include "core/ids.h"

namespace switchyard {

using StreamId = StrongId<struct StreamTag, std::uint64_t>;
using WatchId = StrongId<struct WatchTag, std::uint64_t>;
using RequestId = StrongId<struct RequestTag, std::uint64_t>;
// One write to the store, named by the coordinator that asked for it.
using WriteId = StrongId<struct WriteTag, std::uint64_t>;

}  // namespace switchyard
