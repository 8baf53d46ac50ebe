// The arguments of the grouped product's kernel; grouped_gemm.h says what the fields mean.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchyard::cuda {

// Where the rows of the groups lie among the slots.
struct GroupSource {
  const std::int32_t* counts;
  const std::int32_t* offsets;  // null: group * slots
  std::int32_t slots;           // of a group, with null offsets
};

struct GemmArguments {
  const std::byte* weights;
  const float* weight_scales;
  const std::byte* const* weights_of_group;  // null: groups lie one after the other
  const float* const* scales_of_group;
  const std::byte* rows;
  std::int64_t row_stride;
  std::int64_t scale_offset;
  const std::int32_t* row_index;
  GroupSource groups;
  std::byte* out;
  std::int64_t out_stride;
  std::int64_t out_scale_offset;
  std::byte* carry;  // GemmCarry; null: units stay whole
  int group_count;
  int weight_tiles;  // of a group
  int k_blocks;      // of 128 bytes
  int stages;        // set by the launch
  int window;
  int early;
};

}  // namespace switchyard::cuda
