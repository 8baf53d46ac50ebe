// Memory that another GPU writes while a kernel reads it: 16 bytes at a time, relaxed, of system
// scope, which PTX makes single-copy atomic; and waits for it that end.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

constexpr std::uint32_t kAllLanes = 0xffffffffU;
// Memory holds this word where nothing has landed. No codes of E4M3 have a byte 0xff, no codes of
// INT8 0x80, scales have no sign; of E2M1 and BF16 WithoutPoison changes what would be it. So one
// word serves steps of different formats in turn.
constexpr std::uint32_t kPoison = kExchangePoison;

// Volatile, which is relaxed of system scope and never narrowed: of a relaxed load whose words are
// not all used, ptxas makes loads of single words (CUDA 13.0, sm_90a), so that a tag could be of
// this step and what it vouches for of an earlier one.
__device__ __forceinline__ uint4 LoadSystem(const void* from) {
  std::uint64_t low;
  std::uint64_t high;
  asm volatile("{.reg .b128 t; ld.volatile.global.b128 t, [%2]; mov.b128 {%0, %1}, t;}"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return make_uint4(static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                    static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32));
}
// A word that another GPU or the host may write at any time.
__device__ __forceinline__ std::uint32_t LoadWord(const void* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void StoreWord(std::uint32_t* to, std::uint32_t word) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ void StoreSystem(void* to, uint4 value) {
  const std::uint64_t low = value.x | static_cast<std::uint64_t>(value.y) << 32;
  const std::uint64_t high = value.z | static_cast<std::uint64_t>(value.w) << 32;
  asm volatile(
      "{.reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t;}" ::"l"(to),
      "l"(low), "l"(high)
      : "memory");
}
// All that this thread has read and written, and what a CTA's other threads had before a barrier,
// comes before what it writes from now on, for every GPU.
__device__ __forceinline__ void FenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// The order holds on this GPU: what others have added comes before what is read from now on.
__device__ __forceinline__ std::uint32_t AddAcquireRelease(std::uint32_t* at, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(value)
               : "memory");
  return before;
}
// 16 bytes that only this rank writes now.
__device__ __forceinline__ void StorePoison(void* to) {
  *static_cast<uint4*>(to) = make_uint4(kPoison, kPoison, kPoison, kPoison);
}

// Words of BF16 whose first would be poison, a NaN above -infinity, get another NaN.
__device__ __forceinline__ uint4 WithoutPoison(uint4 words) {
  if (words.x == kPoison) words.x = kPoison & 0x7fffffffU;
  return words;
}
// Codes of E2M1 whose first eight would be poison get 0 for the -0 among them.
__device__ __forceinline__ uint4 CodesWithoutPoison(uint4 words) {
  if (words.x == kPoison) words.x = kPoison & 0xffffff0fU;
  return words;
}

__device__ __forceinline__ std::uint32_t LoadRelaxed(const std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

// Marks packets and headers of a step, so that those of earlier ones do not count. No step's is
// poison.
__device__ __forceinline__ std::uint32_t TagOf(std::uint32_t step) { return step + 1; }
static_assert(kExchangeStepsMax < kPoison);

// The first reason stays for the host to read; the rank is skipped from now on. `awaited`: of
// ExchangeReport.
__device__ __forceinline__ void Lose(const ExchangeRank& group, int rank, std::uint32_t step,
                                     ExchangeFault fault, std::uint32_t awaited = 0) {
  ExchangeState& state = *group.state;
  atomicOr(&state.lost, 1U << rank);
  if (atomicCAS(&state.fault, 0U, static_cast<std::uint32_t>(fault)) != 0) return;
  state.fault_rank = static_cast<std::uint32_t>(rank);
  state.fault_step = step;
  if (group.report == nullptr) return;
  group.report->rank = static_cast<std::uint32_t>(rank);
  group.report->step = step;
  group.report->awaited = awaited;
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&group.report->fault),
               "r"(static_cast<std::uint32_t>(fault))
               : "memory");
}

// Call Over in each turn of a wait for `rank`; true ends the wait, without what was waited for.
// `awaited`: as of Lose.
class Patience {
 public:
  __device__ __forceinline__ bool Over(const ExchangeRank& group, int rank, std::uint32_t step,
                                       std::uint32_t awaited = 0) {
    // Looked at rarely: the clock and the state are as far away as what is waited for.
    if ((++turns_ & 63U) != 0) return false;
    if ((LoadRelaxed(&group.state->lost) >> rank & 1U) != 0) return true;
    const auto now = static_cast<std::uint32_t>(GlobalNanoseconds() / kTick);
    if (turns_ == 64) begun_ = now;
    const bool in_time = now - begun_ < group.timeout_ns / kTick;
    if (in_time && !((turns_ & 4095U) == 0 && IsGone(group, rank))) return false;
    Lose(group, rank, step, ExchangeFault::kTimeout, awaited);
    return true;
  }

 private:
  // Only one thread of a warp reads the host's memory, and only in waits of milliseconds: reads by
  // all threads that wait would hold up every step. They may wait for different ranks, so that one
  // tells the others of all.
  __device__ __forceinline__ static bool IsGone(const ExchangeRank& group, int rank) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if (group.report != nullptr && lane == __ffs(static_cast<int>(__activemask())) - 1) {
      const std::uint32_t gone = LoadWord(&group.report->gone);
      if (gone != 0) atomicOr(&group.state->gone, gone);
    }
    return (LoadRelaxed(&group.state->gone) >> rank & 1U) != 0;
  }

  // Nanoseconds. A time in such ticks fits in one register, up to kExchangeTimeoutMax: waits have
  // none to spare.
  static constexpr std::uint64_t kTick = 1024;

  std::uint32_t turns_ = 0;
  std::uint32_t begun_ = 0;
};

// How many kernels have ended before this one. Asked for long before it is used: the answer is as
// far away as any memory, and everything that a step stores needs it.
class StepNumber {
 public:
  __device__ __forceinline__ explicit StepNumber(const std::uint64_t* parts) {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(parts_) : "l"(parts) : "memory");
  }
  // The first use waits, and must not be moved before what comes first in the program.
  __device__ __forceinline__ std::uint32_t Get() {
    asm volatile("" : "+l"(parts_));
    return static_cast<std::uint32_t>(parts_ / kExchangeParts);
  }

 private:
  std::uint64_t parts_;
};
// Every thread of a CTA calls it at its end.
__device__ __forceinline__ void EndStep(std::uint64_t* parts) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::uint32_t others = gridDim.x - 1;
  const std::uint64_t share = blockIdx.x == 0 ? kExchangeParts - others : 1;
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(parts), "l"(share) : "memory");
}

}  // namespace switchyard::cuda
