// The floor that weight-bound code is held against: how fast this machine reads memory, right now.
//
// Absolute figures drift by 15 % and more on shared machines, so measure a pass of this between
// passes of the code in question and give the ratio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/device/cpu/machine/compute_pool.h"
#include "worker/device/host/aligned_buffer.h"

namespace switchyard::bench {

class ReadBandwidth {
 public:
  // Reads `bytes` (rounded up to a page) with `threads` threads; more than the last-level cache, or
  // it measures the cache. Picks the prefetch distance that serves this machine best. Ends the
  // process when memory or threads are not to be had.
  ReadBandwidth(std::int64_t bytes, int threads);

  // Seconds for one pass over all bytes.
  double ReadOnce();
  [[nodiscard]] std::int64_t bytes() const { return buffer_.bytes(); }

 private:
  AlignedBuffer buffer_;
  std::unique_ptr<ComputePool> pool_;
  std::int64_t ahead_bytes_ = 0;
};

}  // namespace switchyard::bench
