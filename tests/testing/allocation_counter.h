// Counts calls of operator new, to show that a hot path allocates nothing. Link
// allocation_counter.cc into the test that wants it.
#pragma once

#include <cstdint>

namespace switchyard::testing {

// Calls of operator new by the calling thread since it started.
std::uint64_t AllocationsOfThisThread();

}  // namespace switchyard::testing
