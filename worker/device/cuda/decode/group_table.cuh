// The work list of a grouped kernel, made by every CTA for itself from the counts on the device.
//
// A unit is one tile of weights times one tile of rows. Group g has RowTiles(count) * tiles units,
// and a group without rows none; the row tiles of one weight tile are neighbors, so that CTAs that
// run at the same time read the same weights, all but one of them from L2.
#pragma once

#include <cstdint>

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

struct GroupTable {
  std::int32_t* first;    // [groups + 1]: row tiles of the groups before
  std::int32_t* counts;   // [groups]
  std::int32_t* offsets;  // [groups]
  int groups;

  static __host__ __device__ constexpr int Bytes(int groups) { return (3 * groups + 1) * 4; }

  __device__ __forceinline__ GroupTable(void* memory, int group_count)
      : first(static_cast<std::int32_t*>(memory)),
        counts(first + group_count + 1),
        offsets(counts + group_count),
        groups(group_count) {}

  __device__ __forceinline__ int RowTiles() const { return first[groups]; }
};

constexpr int kTableThreads = 256;  // the multiplying warps
constexpr int kTableBarrier = 1;    // of those warps
constexpr int kTableReady = 4;      // of the CTA: the multiplying warps arrive, the others wait

// By the multiplying warps, for which the table is complete when it returns.
template <int kRows>
__device__ __forceinline__ void FillGroupTable(const GroupSource& from, const GroupTable& table) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int g = tid; g < table.groups; g += kTableThreads) {
    int count = max(from.counts[g], 0);
    if (from.offsets == nullptr) count = min(count, from.slots);
    table.counts[g] = count;
    table.offsets[g] = from.offsets == nullptr ? g * from.slots : from.offsets[g];
    table.first[g + 1] = (count + kRows - 1) / kRows;
  }
  SyncNamed(kTableBarrier, kTableThreads);
  if (tid < 32) {
    int before = 0;
    for (int base = 0; base < table.groups; base += 32) {
      const int g = base + tid;
      int sum = g < table.groups ? table.first[g + 1] : 0;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int below = __shfl_up_sync(~0U, sum, d);
        if (tid >= d) sum += below;
      }
      if (g < table.groups) table.first[g + 1] = before + sum;
      before += __shfl_sync(~0U, sum, 31);
    }
    if (tid == 0) table.first[0] = 0;
  }
  SyncNamed(kTableBarrier, kTableThreads);
  ArriveNamed(kTableReady, static_cast<int>(blockDim.x));
}
// By the other warps.
__device__ __forceinline__ void WaitForGroupTable() {
  SyncNamed(kTableReady, static_cast<int>(blockDim.x));
}

struct Unit {
  int group;
  int weight_tile;  // of the group
  int row_tile;
};

// Finds units in ascending order. A whole warp calls it and looks at 32 groups at a time: this is
// on the way of the first rows, and between all units.
class UnitWalk {
 public:
  __device__ __forceinline__ UnitWalk(const GroupTable& table, int weight_tiles)
      : first_(table.first), groups_(table.groups), weight_tiles_(weight_tiles) {}

  __device__ __forceinline__ int count() const { return first_[groups_] * weight_tiles_; }

  // `unit` < count(), and not less than in the last call.
  __device__ __forceinline__ Unit Seek(int unit) {
    while (true) {
      const int g = group_ + static_cast<int>(threadIdx.x % 32);
      const unsigned beyond =
          __ballot_sync(~0U, g >= groups_ || unit < first_[g + 1] * weight_tiles_);
      if (beyond != 0) {
        group_ += __ffs(static_cast<int>(beyond)) - 1;
        break;
      }
      group_ += 32;
    }
    const int before = first_[group_];
    const int rest = unit - before * weight_tiles_;
    const int row_tiles = first_[group_ + 1] - before;
    if (row_tiles == 1) return {group_, rest, 0};
    const int weight_tile = rest / row_tiles;
    return {group_, weight_tile, rest - weight_tile * row_tiles};
  }

 private:
  const std::int32_t* first_;
  int groups_;
  int weight_tiles_;
  int group_ = 0;
};

}  // namespace switchyard::cuda
