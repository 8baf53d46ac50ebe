// Work on many items by several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace switchyard {

// Calls work(0) to work(count - 1), each once and begun in this order, from the calling thread and
// from up to `threads` - 1 others, which yield the CPU to threads that serve (nice 10). Begins no
// further item after a failure and returns the error of the first item that failed, as a loop
// would; items after it may have been done. Where the system has no further thread, fewer work.
absl::Status ParallelEach(std::size_t count, int threads,
                          const std::function<absl::Status(std::size_t)>& work);

// Threads for work that must not disturb what serves: half of UsableCpus, from 1 to 16.
int HalfOfCpus();

}  // namespace switchyard
