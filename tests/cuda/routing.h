// Rows of groups for tests and benchmarks: counts, offsets and lists of rows, on host and device.
#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cuda/device_buffer.h"
#include "worker/device/cuda/decode/grouped_gemm.h"

namespace switchyard::cuda::testing {

// The index layout: slots of a group follow those of the group before; a group's rows are distinct
// rows of `source_rows`, in random order.
class IndexRouting {
 public:
  IndexRouting(const std::vector<std::int32_t>& counts, int source_rows, unsigned seed)
      : counts_(counts) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> offsets;
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> all(static_cast<std::size_t>(source_rows));
    std::iota(all.begin(), all.end(), 0);
    for (const std::int32_t count : counts) {
      offsets.push_back(static_cast<std::int32_t>(rows.size()));
      for (std::int32_t i = 0; i < count; i++) {
        if (i < source_rows) {
          const auto at = static_cast<std::size_t>(i);
          const std::size_t other = at + random() % (all.size() - at);
          std::swap(all[at], all[other]);
        }
        rows.push_back(all[static_cast<std::size_t>(i % source_rows)]);
      }
    }
    slots_ = static_cast<std::int64_t>(rows.size());
    device_counts_ = DeviceBuffer<std::int32_t>(counts);
    device_offsets_ = DeviceBuffer<std::int32_t>(offsets);
    device_rows_ = DeviceBuffer<std::int32_t>(rows);
    host_rows_ = rows;
  }

  [[nodiscard]] GemmGroups groups() const {
    return {device_counts_.get(), device_offsets_.get(), 0,
            static_cast<std::int32_t>(counts_.size())};
  }
  [[nodiscard]] const std::int32_t* rows() const { return device_rows_.get(); }
  [[nodiscard]] const std::vector<std::int32_t>& host_rows() const { return host_rows_; }
  [[nodiscard]] std::int64_t slots() const { return slots_; }

 private:
  std::vector<std::int32_t> counts_;
  std::vector<std::int32_t> host_rows_;
  std::int64_t slots_ = 0;
  DeviceBuffer<std::int32_t> device_counts_;
  DeviceBuffer<std::int32_t> device_offsets_;
  DeviceBuffer<std::int32_t> device_rows_;
};

}  // namespace switchyard::cuda::testing
