// The kernel of fused_ffn.h. A unit of the first phase is 64 gate and 64 up rows of w13 over the
// whole row: 64 hidden values, quantized together. A unit of the second is 128 rows of w2 over the
// whole hidden row, promoted to FP32 every 64 values. All units of the first phase come before
// those of the second, experts in order, so the early experts are complete long before the second
// phase reaches the late ones. The gathering warps of a second-phase unit wait for the expert's
// counter; its weights stream meanwhile. A warp of its own raises the counter, so that no
// multiplying warp waits for a release.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/decode/fused_ffn.h"
#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/row_gather.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

constexpr int kFfnThreads = 384;
constexpr int kFfnSharedBytes = 231424;
constexpr int kBlockBytes = 16384;      // 128 weight rows of 128 bytes
constexpr int kHiddenScalesOfRow = 16;  // 64 bytes: no two rows share a sector
constexpr int kCounterRead = 5;         // a barrier
constexpr int kUnitOverhead = 1;        // the cost of a unit's ends, in stages
constexpr std::uint64_t kWaitNanosecondsMax = 2'000'000'000;
constexpr std::uint32_t kFullWarp = 0xffffffffU;

struct FfnArguments {
  const std::byte* w13;
  const std::byte* w2;
  const float* scales13;
  const float* scales2;
  const std::byte* rows;
  std::int64_t row_stride;
  std::int64_t scale_offset;
  const std::int32_t* row_index;
  GroupSource groups;
  std::byte* hidden;        // [slot][128 * k_blocks2]
  float* hidden_scales;     // [slot][kHiddenScalesOfRow]
  std::uint32_t* ready;     // [2][groups]: units of the first phase that are done
  std::uint64_t* finished;  // CTAs of all calls
  std::byte* out;
  std::int64_t out_stride;
  int group_count;
  int k_blocks1;
  int k_blocks2;
  int tiles1;  // of an expert: hidden values / 64
  int tiles2;  // output values / 128
  int stages;
  int window;
  int early;
};

template <int kRows>
struct FfnLayout {
  static constexpr int kStageBytes = kBlockBytes + kRows * 128;
  static constexpr int kScaleBytes = kRows * 8;
  static constexpr int kOutRow = (64 + 8) * 2;  // a warpgroup's 64 columns in BF16, padded
  static constexpr int kHiddenRow = 64 + 16;    // the CTA's 64 columns in E4M3, padded
  static constexpr int kTransposedBytes = 2 * kRows * kOutRow;
  static constexpr int kAccumulators = kRows / 2;

  static constexpr int FixedBytes(int groups) {
    return 1024 + kTransposedBytes + kRows * 4 + GroupTable::Bytes(groups) + 64;
  }
  static constexpr int StagesFor(int groups) {
    return (kFfnSharedBytes - FixedBytes(groups)) / (kStageBytes + kScaleBytes + 16);
  }
  static constexpr int kStagesMin = StagesFor(kGroupsMax);
  static constexpr int kGatherDepth =
      kStagesMin > kGatherDepthMax + 1 ? kGatherDepthMax : kStagesMin - 2;
  static_assert(kGatherDepth >= 2);
};

struct FfnUnit {
  bool second;
  Unit unit;
};

// This CTA's units in order. The first phase is dealt round. The second goes to the least loaded
// CTA, the first of several: `more_` CTAs have one unit of the first phase more than the others,
// which are then `lead_` rounds ahead.
class FfnSchedule {
 public:
  __device__ __forceinline__ FfnSchedule(const FfnArguments& args, const GroupTable& table)
      : first_(table, args.tiles1), second_(table, args.tiles2) {
    const int ctas = static_cast<int>(gridDim.x);
    first_units_ = first_.count();
    second_units_ = second_.count();
    more_ = first_units_ % ctas;
    fewer_ = ctas - more_;
    const int cost = args.k_blocks2 + kUnitOverhead;
    lead_ = (args.k_blocks1 + kUnitOverhead + cost - 1) / cost;
  }

  __device__ __forceinline__ bool Next(FfnUnit* unit) {
    const int cta = static_cast<int>(blockIdx.x);
    const int index = cta + first_round_ * static_cast<int>(gridDim.x);
    if (index < first_units_) {
      first_round_++;
      *unit = {false, first_.Seek(index)};
      return true;
    }
    const int round = second_round_++;
    const int tile = cta < more_ ? more_ * round + fewer_ * (round + lead_) + cta
                                 : fewer_ * round + more_ * max(0, round - lead_ + 1) + cta - more_;
    if (tile >= second_units_) return false;
    *unit = {true, second_.Seek(tile)};
    return true;
  }

 private:
  UnitWalk first_;
  UnitWalk second_;
  int first_units_;
  int second_units_;
  int more_;
  int fewer_;
  int lead_;
  int first_round_ = 0;
  int second_round_ = 0;
};

template <int kRows>
class FfnMultiplier {
  using Layout = FfnLayout<kRows>;
  using Sums = float[Layout::kAccumulators];

 public:
  __device__ __forceinline__ FfnMultiplier(const FfnArguments& args, const StageRing& ring,
                                           const GroupTable& table, std::uint32_t transposed,
                                           std::uint32_t largest, std::uint32_t done)
      : args_(args),
        ring_(ring),
        table_(table),
        transposed_(transposed),
        largest_(largest),
        done_(done) {}

  __device__ __forceinline__ void Run(int dropped) {
    for (int i = 0; i < dropped; i++) {
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Release(at_.stage);
      at_.Advance(ring_.stages);
    }
    FfnSchedule schedule(args_, table_);
    FfnUnit next;
    bool more = schedule.Next(&next);
    if (more) AskScales(next);
    bool after_first = false;
    while (more) {
      const FfnUnit now = next;
      scale_a_ = next_a_;
      scale_b_ = next_b_;
      more = schedule.Next(&next);
      if (more) AskScales(next);
      const Unit& unit = now.unit;
      const int rows = min(kRows, table_.counts[unit.group] - unit.row_tile * kRows);
      const int slot = table_.offsets[unit.group] + unit.row_tile * kRows;
#pragma unroll
      for (float& sum : sums_) sum = 0.0F;
      if (now.second) {
        SumSecond();
        StoreOut(unit.weight_tile, slot, rows, after_first);
      } else {
        SumFirst();
        StoreHidden(unit.weight_tile, slot, rows);
      }
      after_first = !now.second;
    }
  }

 private:
  __device__ __forceinline__ int half() const { return threadIdx.x >> 7; }
  __device__ __forceinline__ int warp() const { return threadIdx.x >> 5 & 3; }
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

  // The scales of a unit's weights, a block of k in each lane.
  __device__ __forceinline__ void AskScales(const FfnUnit& next) {
    const Unit& unit = next.unit;
    if (next.second) {
      const float* at =
          args_.scales2 + (unit.group * args_.tiles2 + unit.weight_tile) * args_.k_blocks2;
      next_a_ = lane() < args_.k_blocks2 ? __ldg(at + lane()) : 0.0F;
    } else {
      const float* gate =
          args_.scales13 + (unit.group * args_.tiles1 + unit.weight_tile / 2) * args_.k_blocks1;
      next_a_ = lane() < args_.k_blocks1 ? __ldg(gate + lane()) : 0.0F;
      const float* up = gate + args_.k_blocks2 * args_.k_blocks1;
      next_b_ = lane() < args_.k_blocks1 ? __ldg(up + lane()) : 0.0F;
    }
  }

  __device__ __forceinline__ void Release(int stage) { ArriveOfWarp(ring_.Empty(stage)); }

  // Starts `kSteps` steps from `from` of a stage.
  template <int kSteps>
  __device__ __forceinline__ void Start(Sums& into, int stage, int from) {
    const std::uint64_t weights = MmaDescriptor(ring_.Weights(stage) + half() * 8192) + 2 * from;
    const std::uint64_t rows = MmaDescriptor(ring_.Rows(stage)) + 2 * from;
    FenceAccumulators();
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      Mma<kRows, MmaType::kE4m3>::Step(into, weights + 2 * step, rows + 2 * step, step > 0);
    }
    CommitMma();
  }

  // Two stages at a time, so that one is multiplied while the other is added.
  __device__ __forceinline__ void SumFirst() {
#pragma unroll 1
    for (int k = 0; k < args_.k_blocks1; k += 2) {
      float part[2][Layout::kAccumulators];
      RingPosition other = at_;
      other.Advance(ring_.stages);
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Start<4>(part[0], at_.stage, 0);
      WaitBarrier(ring_.Full(other.stage), other.phase);
      Start<4>(part[1], other.stage, 0);
#pragma unroll
      for (int q = 0; q < 2; q++) {
        float2 rows[kRows / 8];
        const std::uint32_t at = ring_.Scales(q == 0 ? at_.stage : other.stage) + (lane() & 3) * 8;
#pragma unroll
        for (int j = 0; j < kRows / 8; j++) rows[j] = LoadSharedFloat2(at + j * 32);
        const float gate = __shfl_sync(kFullWarp, scale_a_, k + q);
        const float up = __shfl_sync(kFullWarp, scale_b_, k + q);
        if (q == 0) {
          WaitMma<1>();
        } else {
          WaitMma<0>();
        }
        TouchAccumulators(part[q]);
        Release(q == 0 ? at_.stage : other.stage);
#pragma unroll
        for (int j = 0; j < kRows / 8; j++) {
          sums_[4 * j] += part[q][4 * j] * (rows[j].x * gate);
          sums_[4 * j + 1] += part[q][4 * j + 1] * (rows[j].y * gate);
          sums_[4 * j + 2] += part[q][4 * j + 2] * (rows[j].x * up);
          sums_[4 * j + 3] += part[q][4 * j + 3] * (rows[j].y * up);
        }
      }
      at_ = other;
      at_.Advance(ring_.stages);
    }
  }

  // A stage has two hidden scales a row: its halves are multiplied apart.
  __device__ __forceinline__ void SumSecond() {
#pragma unroll 1
    for (int k = 0; k < args_.k_blocks2; k++) {
      float part[2][Layout::kAccumulators];
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Start<2>(part[0], at_.stage, 0);
      Start<2>(part[1], at_.stage, 2);
      float4 rows[kRows / 8];  // two columns: (first, second half), (first, second half)
      const std::uint32_t at = ring_.Scales(at_.stage) + (lane() & 3) * 16;
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) rows[j] = LoadSharedFloat4(at + j * 64);
      const float w = __shfl_sync(kFullWarp, scale_a_, k);
      WaitMma<1>();
      TouchAccumulators(part[0]);
#pragma unroll
      for (int i = 0; i < Layout::kAccumulators; i++) {
        sums_[i] += part[0][i] * ((i % 2 == 0 ? rows[i / 4].x : rows[i / 4].z) * w);
      }
      WaitMma<0>();
      TouchAccumulators(part[1]);
      Release(at_.stage);
#pragma unroll
      for (int i = 0; i < Layout::kAccumulators; i++) {
        sums_[i] += part[1][i] * ((i % 2 == 0 ? rows[i / 4].y : rows[i / 4].w) * w);
      }
      at_.Advance(ring_.stages);
    }
  }

  // silu(gate) * up of 64 hidden values; both warpgroups have 32 of them.
  __device__ __forceinline__ void StoreHidden(int tile, int slot, int rows) {
    SyncNamed(1, 256);  // the tile before is stored
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float gate = sums_[4 * j + c];
        const float value = __fdividef(gate, 1.0F + __expf(-gate)) * sums_[4 * j + 2 + c];
        sums_[4 * j + c] = value;
        float amax = fabsf(value);
        amax = fmaxf(amax, __shfl_xor_sync(kFullWarp, amax, 4));
        amax = fmaxf(amax, __shfl_xor_sync(kFullWarp, amax, 8));
        amax = fmaxf(amax, __shfl_xor_sync(kFullWarp, amax, 16));
        if (lane() < 4) MaxShared(largest_ + (8 * j + 2 * lane() + c) * 4, __float_as_uint(amax));
      }
    }
    SyncNamed(1, 256);
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) {
      const int row = 8 * j + 2 * (lane() & 3);
      const float2 amax = LoadSharedFloat2(largest_ + row * 4);
      const std::uint32_t codes =
          E4m3Pair(sums_[4 * j] * Factor(amax.x), sums_[4 * j + 1] * Factor(amax.y));
      const std::uint32_t at =
          transposed_ + row * Layout::kHiddenRow + half() * 32 + warp() * 8 + (lane() >> 2);
      StoreShared8(at, codes & 0xffU);
      StoreShared8(at + Layout::kHiddenRow, codes >> 8);
    }
    const int thread = static_cast<int>(threadIdx.x);
    const float amax = thread < kRows ? LoadSharedFloat(largest_ + thread * 4) : 0.0F;
    SyncNamed(1, 256);
    if (thread < kRows) StoreShared32(largest_ + thread * 4, 0);
    if (thread < rows) {
      args_.hidden_scales[static_cast<std::int64_t>(slot + thread) * kHiddenScalesOfRow + tile] =
          fmaxf(amax, kFp8AmaxMin) * (1.0F / kE4m3Largest);
    }
    if (thread < rows * 4) {
      const std::int64_t width = args_.k_blocks2 * 128;
      *reinterpret_cast<uint4*>(args_.hidden + (slot + thread / 4) * width + tile * 64 +
                                thread % 4 * 16) =
          LoadShared128(transposed_ + thread / 4 * Layout::kHiddenRow + thread % 4 * 16);
    }
    WaitBarrier(done_ + 8, seen_phase_);  // the unit before was announced
    ArriveOfWarp(done_);
    seen_phase_ ^= 1;
  }

  // 448 / amax for any amax: __fdividef alone gives 0 from 2^126 on.
  static __device__ __forceinline__ float Factor(float amax) {
    return __fdividef(kE4m3Largest * 0.25F, fmaxf(amax, kFp8AmaxMin) * 0.25F);
  }

  __device__ __forceinline__ void StoreOut(int tile, int slot, int rows, bool after_first) {
    const std::uint32_t area = transposed_ + half() * kRows * Layout::kOutRow;
    // The tile before is stored; one of the first phase was in the area of both warpgroups.
    if (after_first) {
      SyncNamed(1, 256);
    } else {
      SyncNamed(2 + half(), 128);
    }
#pragma unroll
    for (int i = 0; i < Layout::kAccumulators; i++) {
      const int n = warp() * 16 + (lane() >> 2) + 8 * ((i >> 1) & 1);
      const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
      StoreShared16(area + row * Layout::kOutRow + n * 2,
                    __bfloat16_as_ushort(__float2bfloat16(sums_[i])));
    }
    SyncNamed(2 + half(), 128);
    std::byte* out = args_.out + (tile * 128 + half() * 64) * 2;
    for (int i = threadIdx.x & 127; i < rows * 8; i += 128) {
      *reinterpret_cast<uint4*>(out + (slot + i / 8) * args_.out_stride + i % 8 * 16) =
          LoadShared128(area + i / 8 * Layout::kOutRow + i % 8 * 16);
    }
  }

  const FfnArguments& args_;
  const StageRing& ring_;
  const GroupTable& table_;
  const std::uint32_t transposed_;
  const std::uint32_t largest_;
  const std::uint32_t done_;
  RingPosition at_{};
  std::uint32_t seen_phase_ = 1;  // the first wait passes
  float scale_a_ = 0.0F;          // w2, or gate
  float scale_b_ = 0.0F;          // up
  float next_a_ = 0.0F;
  float next_b_ = 0.0F;
  Sums sums_;
};

__device__ __forceinline__ void StreamFfnWeights(const FfnArguments& args, const GroupTable& table,
                                                 int fetched, WeightStream& stream) {
  FfnSchedule schedule(args, table);
  FfnUnit now;
  while (schedule.Next(&now)) {
    const int k_blocks = now.second ? args.k_blocks2 : args.k_blocks1;
    const int tiles = now.second ? args.tiles2 : args.tiles1;
    const std::int64_t tile =
        static_cast<std::int64_t>(now.unit.group) * tiles + now.unit.weight_tile;
    const std::byte* from = (now.second ? args.w2 : args.w13) + tile * k_blocks * kBlockBytes;
    if (threadIdx.x % 32 == 0) {
      for (int k = fetched; k < k_blocks; k++) stream.Fetch(from + k * kBlockBytes, kBlockBytes);
    }
    __syncwarp();
    fetched = 0;
  }
}

// The counters of this call: calls use two sets in turn, and each clears the other one. Right as
// long as a CTA of this call has not finished: the caller asks before it passes the barrier of the
// table, and its own CTA finishes after that.
__device__ __forceinline__ int CounterSet(const FfnArguments& args) {
  return static_cast<int>(*args.finished / gridDim.x % 2);
}

// Waits until all first-phase units of `group` are done.
template <typename Gather>
__device__ __forceinline__ void WaitForHidden(const std::uint32_t* ready, const FfnArguments& args,
                                              const GroupTable& table, int group, Gather& gather) {
  const int row_tiles = table.first[group + 1] - table.first[group];
  const auto wanted = static_cast<std::uint32_t>(row_tiles * args.tiles1);
  const auto is_behind = [&] {
    const bool behind = threadIdx.x % 32 == 0 && LoadAcquire(ready + group) < wanted;
    return __any_sync(kFullWarp, behind) != 0;
  };
  if (!is_behind()) return;
  gather.Flush();
  const std::uint64_t begin = GlobalNanoseconds();
  while (is_behind()) {
    if (GlobalNanoseconds() - begin > kWaitNanosecondsMax) __trap();
  }
}

// `list` is the first unit's if there is one, of which `fetched` blocks are on their way.
template <int kRows, int kDepth>
__device__ __forceinline__ void GatherFfnRows(const FfnArguments& args, const GroupTable& table,
                                              int set, RowList<kRows>& list, int fetched,
                                              RowGather<kRows, kDepth>& gather) {
  const int thread = static_cast<int>(threadIdx.x) - kGatherFirst;
  const std::uint32_t* ready = args.ready + set * args.group_count;
  FfnSchedule schedule(args, table);
  FfnUnit next;
  bool more = schedule.Next(&next);
  while (more) {
    const FfnUnit now = next;
    const bool second = now.second;
    const RowPointers<kRows> from(
        list, second ? args.hidden : args.rows, second ? args.k_blocks2 * 128 : args.row_stride,
        second ? reinterpret_cast<const std::byte*>(args.hidden_scales)
               : args.rows + args.scale_offset,
        second ? kHiddenScalesOfRow * 4 : args.row_stride, gather.chunk());
    more = schedule.Next(&next);  // and its list
    if (more) {
      const Unit& unit = next.unit;
      list.Load(next.second ? nullptr : args.row_index,
                table.offsets[unit.group] + unit.row_tile * kRows,
                min(kRows, table.counts[unit.group] - unit.row_tile * kRows), thread);
    }
    if (second) {
      WaitForHidden(ready, args, table, now.unit.group, gather);
#pragma unroll 1
      for (int k = 0; k < args.k_blocks2; k++) gather.template Fetch<8>(from, k);
    } else {
#pragma unroll 1
      for (int k = fetched; k < args.k_blocks1; k++) gather.template Fetch<4>(from, k);
    }
    fetched = 0;
  }
  gather.Flush();
}

// One warp: raises an expert's counter for each first-phase unit of this CTA. The barrier after
// `done` says that a unit was seen, so that its phases cannot get ahead of this warp.
__device__ __forceinline__ void AnnounceHidden(const FfnArguments& args, const GroupTable& table,
                                               int set, std::uint32_t done) {
  std::uint32_t* ready = args.ready + set * args.group_count;
  if (blockIdx.x == 0) {
    std::uint32_t* other = args.ready + (1 - set) * args.group_count;
    for (int g = threadIdx.x % 32; g < args.group_count; g += 32) other[g] = 0;
  }
  FfnSchedule schedule(args, table);
  FfnUnit now;
  std::uint32_t phase = 0;
  while (schedule.Next(&now) && !now.second) {
    WaitBarrier(done, phase);
    phase ^= 1;
    if (threadIdx.x % 32 == 0) {
      Arrive(done + 8);
      AddRelease(ready + now.unit.group, 1);
    }
    __syncwarp();
  }
}

template <int kRows>
__global__ void __launch_bounds__(kFfnThreads, 1)
    FusedFfnKernel(const __grid_constant__ FfnArguments args) {
  using Layout = FfnLayout<kRows>;
  extern __shared__ std::byte shared[];
  __shared__ __align__(8) std::uint64_t done_barriers[2];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t base = SharedAddress(shared);
  const std::uint32_t aligned = (base + 1023) & ~1023U;
  const std::uint32_t scales_at = aligned + args.stages * Layout::kStageBytes;
  const std::uint32_t transposed = scales_at + args.stages * Layout::kScaleBytes;
  const std::uint32_t largest = transposed + Layout::kTransposedBytes;
  const std::uint32_t full = (largest + kRows * 4 + 15) & ~15U;
  const std::uint32_t done = SharedAddress(done_barriers);
  const StageRing ring = {
      aligned,     scales_at,           full,       full + 8 * args.stages, Layout::kStageBytes,
      kBlockBytes, Layout::kScaleBytes, args.stages};
  const GroupTable table(shared + (full + 16 * args.stages - base), args.group_count);
  if (threadIdx.x == 0) {
    ring.Init();
    InitBarrier(done, kMultiplyingWarps * kArrivalsOfWarp);
    InitBarrier(done + 8, 1);
    FenceBarrierInit();
  }
  if (threadIdx.x < kRows) StoreShared32(largest + threadIdx.x * 4, 0);
  __syncthreads();
  AllowDependentLaunch();

  // The unit of this CTA if every expert has one tile of rows; see grouped_gemm.cuh.
  const int cta = static_cast<int>(blockIdx.x);
  const Unit guess = {cta / args.tiles1, cta % args.tiles1, 0};
  const bool guesses = guess.group < args.group_count;
  const int early = guesses ? min(args.early, args.k_blocks1) : 0;
  WeightStream stream(ring, args.window);
  if (threadIdx.x == 256) {
    const std::byte* from =
        args.w13 + static_cast<std::int64_t>(cta) * args.k_blocks1 * kBlockBytes;
    for (int k = 0; k < early; k++) stream.FetchEarly(from + k * kBlockBytes, kBlockBytes);
  }
  __syncwarp();
  WaitForPrecedingKernels();
  RowList<kRows> list = {};
  const bool gathers = warp == 9 || warp == 10;
  const int thread = static_cast<int>(threadIdx.x) - kGatherFirst;
  const int set = CounterSet(args);
  RowGather<kRows, Layout::kGatherDepth> gather(ring, thread);
  if (gathers && guesses) {
    int count = args.groups.counts[guess.group];
    if (args.groups.offsets == nullptr) count = min(count, args.groups.slots);
    const int slot = args.groups.offsets == nullptr ? guess.group * args.groups.slots
                                                    : args.groups.offsets[guess.group];
    list.Load(args.row_index, slot, min(count, kRows), thread);
    const RowPointers<kRows> from(list, args.rows, args.row_stride, args.rows + args.scale_offset,
                                  args.row_stride, gather.chunk());
    for (int k = 0; k < early; k++) gather.template Fetch<4>(from, k);
    gather.Flush();
  }
  if (warp < kMultiplyingWarps) {
    FillGroupTable<kRows>(args.groups, table);
  } else {
    ArriveNamed(kCounterRead, kFfnThreads);
    WaitForGroupTable();
  }
  FfnSchedule schedule(args, table);
  FfnUnit first;
  bool right = false;
  if (schedule.Next(&first)) {
    const Unit& unit = first.unit;
    right = !first.second && unit.group == guess.group && unit.weight_tile == guess.weight_tile &&
            unit.row_tile == 0;
    if (gathers && !right) {
      list.Load(first.second ? nullptr : args.row_index,
                table.offsets[unit.group] + unit.row_tile * kRows,
                min(kRows, table.counts[unit.group] - unit.row_tile * kRows), thread);
    }
  }
  const int dropped = right ? 0 : early;
  const int fetched = early - dropped;

  if (warp < kMultiplyingWarps) {
    FfnMultiplier<kRows>(args, ring, table, transposed, largest, done).Run(dropped);
    // All warps have read the counter of calls: those that gather and announce before this barrier.
    SyncNamed(kCounterRead, kFfnThreads);
    if (threadIdx.x == 0) AddRelease64(args.finished, 1);
  } else if (warp == 8) {
    StreamFfnWeights(args, table, fetched, stream);
  } else if (gathers) {
    GatherFfnRows(args, table, set, list, fetched, gather);
  } else {
    AnnounceHidden(args, table, set, done);
  }
}

template <int kRows>
cudaError_t LaunchFusedFfn(FfnArguments args, int ctas, bool dependent, cudaStream_t stream) {
  args.stages = FfnLayout<kRows>::StagesFor(args.group_count);
  args.window = min(args.window, args.stages);
  args.early = min(args.early, args.stages);
  const auto kernel = FusedFfnKernel<kRows>;
  const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kFfnSharedBytes);
  if (raised != cudaSuccess) return raised;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(kFfnThreads);
  config.dynamicSmemBytes = kFfnSharedBytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace switchyard::cuda
