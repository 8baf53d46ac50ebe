// The consumer warpgroups of a prefill kernel: 64 rows of the tile each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/device/cuda/gemm/prefill_shared.cuh"
#include "worker/device/cuda/gemm/prefill_store.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/gemm/sm90_wgmma.cuh"
#include "worker/device/cuda/warp_arrivals.h"

namespace switchyard::cuda {

// Gives the stage back to the producers of the cluster.
template <int Cluster>
__device__ __forceinline__ void Release(std::uint64_t* empty) {
  __syncwarp();
  const int lane = threadIdx.x % 32;
  if (Cluster == 1) {
    if (lane < kArrivalsOfWarp) sm90::BarrierArrive(sm90::SharedAddress(empty));
  } else if constexpr (kArrivalsOfWarp == 1) {
    if (lane < Cluster) sm90::BarrierArriveAt(sm90::SharedAddress(empty), lane);
  } else {
    for (int block = 0; block < Cluster; ++block) {
      sm90::BarrierArriveAt(sm90::SharedAddress(empty), block);
    }
  }
}

// 128 products along K are summed by the tensor cores, whose sums keep few bits, then promoted to
// FP32 times both scales. 2 x 128 columns need 128 registers of sums; the halves ("chunks", a box
// of B each) take turns with 64 registers of products, and while one warpgroup promotes, the
// products of the other one run.
template <PrefillKind Kind, int Cluster, int Stages>
__device__ void ConsumeFp8(const PrefillArgs& args, PrefillShared<Stages>* shared) {
  constexpr int kStageStep = sizeof(shared->stage[0]) / 16;  // of a descriptor
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  int scale_row = 0;  // of the thread, in the stage
  const std::uint64_t a_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].a) + warp / 4 * 8192);
  const std::uint64_t b_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].b[0]));
  float sums[2][64] = {};
  float products[64];
  StageCursor at;
  TileOut before;  // what is not stored yet: its second chunk, with SwiGLU both

  auto issue = [&](int chunk) {
    const std::uint64_t a = a_operand + at.stage * kStageStep;
    const std::uint64_t b = b_operand + at.stage * kStageStep + chunk * (kBoxBytes / 16);
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) sm90::WgmmaE4m3(products, a + 2 * k, b + 2 * k, k > 0);
    sm90::WgmmaCommit();
  };
  auto promote = [&](float(&to)[64], float2 scale, bool first) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const float s = (i & 2) != 0 ? scale.y : scale.x;
      to[i] = __fmaf_rn(products[i], s, first ? 0.0F : to[i]);
    }
  };
  // One block of K, whose stage is full. `early` runs while the products of the first chunk do,
  // `late` while those of the second do. Whatever can be waited for is waited for while they run:
  // between their end and the issue of the next ones there is nothing but the promotion.
  auto block = [&](bool first, auto early, auto late) {
    issue(0);
    early();
    const float2 a{shared->a_scales[at.stage][scale_row],
                   shared->a_scales[at.stage][scale_row + 8]};
    const float2 b = shared->note[at.stage].b_scales;
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(products);
    promote(sums[0], {a.x * b.x, a.y * b.x}, first);
    issue(1);
    late();
    std::uint64_t* empty = &shared->empty[at.stage];
    at.template Advance<Stages>();
    const std::uint32_t full = sm90::SharedAddress(&shared->full[at.stage]);
    const bool ready = sm90::BarrierTry(full, at.phase);
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(products);
    Release<Cluster>(empty);
    promote(sums[1], {a.x * b.y, a.y * b.y}, first);
    if (!ready) sm90::BarrierWait(full, at.phase);
  };
  auto nothing = [] {};
  auto store = [&](const float(&chunk)[64], const TileOut& tile) {
    if constexpr (HasSumsOut(Kind)) {
      StoreSums<64>(chunk, shared->out[warp], args, tile);
    } else {
      Store<2>(chunk, shared->out[warp], args, tile);
    }
  };
  auto store_before = [&] {
    if constexpr (IsGated(Kind)) {
      StoreSwiglu(sums[0], sums[1], shared->out[warp], args, before);
    } else {
      store(sums[1], before);
    }
  };

  sm90::BarrierWait(sm90::SharedAddress(&shared->full[0]), 0);
  for (;;) {
    const StageNote note = shared->note[at.stage];
    if (note.kind == StageKind::kEnd) break;
    const TileOut tile{
        .row = note.row + warp * 16, .rows = note.rows - warp * 16, .column = note.column};
    if (note.rows <= warp / 4 * 64) {  // nothing to compute for this warpgroup
      store_before();
      before.rows = 0;
      for (int k = 0; k < args.k_blocks; ++k) {
        Release<Cluster>(&shared->empty[at.stage]);
        at.template Advance<Stages>();
        sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
      }
      continue;
    }
    scale_row = note.row % 4 + warp * 16 + lane / 4;
    block(true, store_before, nothing);
#pragma unroll 1
    for (int k = 1; k < args.k_blocks - 1; ++k) block(false, nothing, nothing);
    if constexpr (IsGated(Kind)) {
      block(false, nothing, nothing);
      before = tile;
    } else {
      block(false, nothing, [&] { store(sums[0], tile); });
      before = tile;
      before.column += kBoxRows;
    }
  }
  store_before();
}

// The sums of a tile's integers by the scales of their rows. A thread has two rows of the
// warp's 16.
__device__ __forceinline__ void StoreScaled(const std::int32_t (&sums)[128], std::uint8_t* memory,
                                            const PrefillArgs& args, const TileOut& tile) {
  const int first = static_cast<int>(threadIdx.x % 32) / 4;
  float scales[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + 8 * half;
    if (row < tile.rows) scales[half] = args.a_scales[(tile.row + row) * args.a_scales_row];
  }
  float scaled[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) scaled[i] = __fmul_rn(__int2float_rn(sums[i]), scales[i / 2 % 2]);
  StoreSums<128>(scaled, memory, args, tile);
}

// Sums of BF16 or INT8 stay in the tensor cores' accumulators; one block of K is always in flight.
template <PrefillKind Kind, int Cluster, int Stages>
__device__ void ConsumeWhole(const PrefillArgs& args, PrefillShared<Stages>* shared) {
  constexpr int kStageStep = sizeof(shared->stage[0]) / 16;  // of a descriptor
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const std::uint64_t a_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].a) + warp / 4 * 8192);
  const std::uint64_t b_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].b[0]));
  std::conditional_t<Kind == PrefillKind::kInt8Sums, std::int32_t, float> sums[128];
  StageCursor at;
  auto issue = [&](bool first) {
    const std::uint64_t a = a_operand + at.stage * kStageStep;
    const std::uint64_t b = b_operand + at.stage * kStageStep;
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int add = !first || k > 0 ? 1 : 0;
      if constexpr (Kind == PrefillKind::kInt8Sums) {
        sm90::WgmmaInt8(sums, a + 2 * k, b + 2 * k, add);
      } else {
        sm90::WgmmaBf16(sums, a + 2 * k, b + 2 * k, add);
      }
    }
    sm90::WgmmaCommit();
  };

  for (;;) {
    sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
    const StageNote note = shared->note[at.stage];
    if (note.kind == StageKind::kEnd) break;
    if (note.rows <= warp / 4 * 64) {  // nothing to compute for this warpgroup
      for (int k = 0; k < args.k_blocks; ++k) {
        sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
        Release<Cluster>(&shared->empty[at.stage]);
        at.template Advance<Stages>();
      }
      continue;
    }
    issue(true);
    int before = at.stage;
    at.template Advance<Stages>();
    for (int k = 1; k < args.k_blocks; ++k) {
      sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
      issue(false);
      sm90::WgmmaWait<1>();
      Release<Cluster>(&shared->empty[before]);
      before = at.stage;
      at.template Advance<Stages>();
    }
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(sums);
    Release<Cluster>(&shared->empty[before]);
    const TileOut tile{
        .row = note.row + warp * 16, .rows = note.rows - warp * 16, .column = note.column};
    if constexpr (Kind == PrefillKind::kInt8Sums) {
      StoreScaled(sums, shared->out[warp], args, tile);
    } else if constexpr (HasSumsOut(Kind)) {
      StoreSums<128>(sums, shared->out[warp], args, tile);
    } else if constexpr (IsGated(Kind)) {
#pragma unroll
      for (int i = 0; i < 64; i += 2) {
        HiddenPair(sums[i], sums[i + 1], sums[64 + i], sums[65 + i]);
      }
      Store<2>(sums, shared->out[warp], args, tile);
    } else {
      Store<4>(sums, shared->out[warp], args, tile);
    }
  }
}

}  // namespace switchyard::cuda
