// The lists of a dispatch of normal mode, as expert_lists.cuh makes them for few tokens. kListCtas
// CTAs send the table, wait for those of all ranks, count the rows of experts, each CTA in its
// share of the choices, and give them slots: CTA c's rows of an expert come after those of CTAs
// before it.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/list_memory.cuh"
#include "worker/device/cuda/exchange/normal_words.cuh"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {

constexpr int kNormalThreads = 512;
static_assert(kNormalThreads >= kExchangeExpertsMax);

class NormalLists {
 public:
  // In shared memory.
  struct Memory {
    std::int32_t counts[kExchangeExpertsMax];  // then: the next slot of each expert
    std::int32_t offsets[kExchangeExpertsMax + 1];
    int tokens[kExchangeRanksMax];
  };

  __device__ __forceinline__ NormalLists(const ExchangeRank& group, const ExchangeStep& step,
                                         std::uint32_t hash, std::uint32_t number, Memory* memory)
      : group_(group),
        step_(step),
        hash_(hash),
        state_(group.state->normal),
        number_(number),
        words_(group, number),
        memory_(*memory) {
    words_.MeanStep(hash, step.cover);
  }

  // By every CTA below kListCtas.
  __device__ __forceinline__ void Make() {
    WriteTable();
    if (words_.IsLast(&state_.tables_sent, kListCtas)) words_.TellTable(step_, hash_);
    MakeOfTables<false>();
  }

  // Parts of Make: the table, without the word that says so, and all that needs the tables of all.
  __device__ __forceinline__ void WriteTable() const {
    const int packets = group_.layout.packets;
    for (int i = FirstOfAll(); i < step_.tokens * packets; i += AllThreads()) {
      const int token = i / packets;
      const int packet = i % packets;
      const uint4 words = PacketOf(group_.shape, step_, token, packet);
      for (int turn = 1; turn <= group_.shape.ranks; ++turn) {
        const int to = (group_.rank + turn) % group_.shape.ranks;
        StoreSystem(
            group_.heaps[to] + group_.layout.Packet(group_.shape, 0, group_.rank, token, packet),
            words);
      }
    }
  }
  template <bool kSealed>
  __device__ __forceinline__ void MakeOfTables() {
    AwaitTables<kSealed>();
    for (int e = Thread(); e < group_.shape.experts_of_rank; e += Threads()) memory_.counts[e] = 0;
    __syncthreads();
    ForEachPacket([this](int, int, int, uint4 words) { Count(words); });
    ShareCounts();
    GiveSlots();
    ForEachPacket([this](int source, int token, int packet, uint4 words) {
      Place(source, token, packet, words);
    });
    if (blockIdx.x == 0) WriteOffsets();
  }

 private:
  static constexpr int kPacketsAtOnce = 4;

  __device__ __forceinline__ static int Thread() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ static int Threads() { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ static int FirstOfAll() {
    return static_cast<int>(blockIdx.x) * Threads() + Thread();
  }
  __device__ __forceinline__ static int AllThreads() { return kListCtas * Threads(); }

  // A source that is late or means another step has no tokens.
  template <bool kSealed>
  __device__ __forceinline__ void AwaitTables() const {
    const int source = Thread();
    if (source < group_.shape.ranks) {
      uint4 said;
      int tokens = 0;
      const bool there = kSealed ? words_.AwaitSeal(source, kTableWord, &said)
                                 : words_.Await(source, kTableWord, &said);
      if (there) {
        if (words_.IsAlike(said)) {
          tokens = min(static_cast<int>(said.x & 0xffffU), step_.cover);
        } else {
          Lose(group_, source, number_, ExchangeFault::kMismatch);
        }
      }
      memory_.tokens[source] = tokens;
      if (blockIdx.x == 0) state_.tokens[source] = static_cast<std::uint32_t>(tokens);
    }
    __syncthreads();
  }

  // Calls `use` for this thread's packets of all sources, several loads at a time.
  template <typename Use>
  __device__ __forceinline__ void ForEachPacket(const Use& use) const {
    const int packets = group_.layout.packets;
    for (int source = 0; source < group_.shape.ranks; ++source) {
      const std::byte* table =
          group_.heaps[group_.rank] + group_.layout.Packet(group_.shape, 0, source, 0, 0);
      const int all = memory_.tokens[source] * packets;
      for (int first = FirstOfAll(); first < all; first += kPacketsAtOnce * AllThreads()) {
        uint4 words[kPacketsAtOnce];
#pragma unroll
        for (int i = 0; i < kPacketsAtOnce; ++i) {
          const int at = first + i * AllThreads();
          if (at < all) words[i] = LoadSystem(table + static_cast<std::int64_t>(at) * 16);
        }
#pragma unroll
        for (int i = 0; i < kPacketsAtOnce; ++i) {
          const int at = first + i * AllThreads();
          if (at < all) use(source, at / packets, at % packets, words[i]);
        }
      }
    }
  }

  __device__ __forceinline__ void Count(uint4 words) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int local = LocalExpert(group_, words.x >> (16 * i) & 0xffffU);
      if (local >= 0) atomicAdd(&memory_.counts[local], 1);
    }
  }

  // Returns when all CTAs of the lists have counted.
  __device__ __forceinline__ void ShareCounts() const {
    __syncthreads();
    for (int e = Thread(); e < group_.shape.experts_of_rank; e += Threads()) {
      state_.counts[blockIdx.x][e] = memory_.counts[e];
    }
    if (words_.IsLast(&state_.lists_counted, kListCtas)) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&state_.lists_released),
                   "r"(number_ + 1)
                   : "memory");
    } else if (Thread() == 0) {
      // Never for long: nothing else is between a CTA's start and its counts than waits that end.
      while (LoadAcquire(&state_.lists_released) != number_ + 1) {
      }
    }
    __syncthreads();
  }

  // Offsets of all experts, and this CTA's first slot of each. A thread has one expert.
  __device__ __forceinline__ void GiveSlots() const {
    const int experts = group_.shape.experts_of_rank;
    const int e = Thread();
    std::int32_t before = 0;
    if (e < experts) {
      std::int32_t all = 0;
#pragma unroll
      for (int c = 0; c < kListCtas; ++c) {
        const std::int32_t count = __ldcg(&state_.counts[c][e]);
        all += count;
        if (c < static_cast<int>(blockIdx.x)) before += count;
      }
      memory_.counts[e] = all;
      if (blockIdx.x == 0) step_.rows.counts[e] = all;
    }
    __syncthreads();
    if (Thread() < 32) AddUp(memory_.counts, memory_.offsets, experts);
    __syncthreads();
    if (e < experts) memory_.counts[e] = memory_.offsets[e] + before;
    __syncthreads();
  }

  __device__ __forceinline__ void Place(int source, int token, int packet, uint4 words) const {
    const std::uint32_t weights[2] = {words.y, words.z};
    const int choice = (source * group_.shape.tokens_max + token) * group_.shape.top_k + 2 * packet;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * packet + i >= group_.shape.top_k) continue;
      const int local = LocalExpert(group_, words.x >> (16 * i) & 0xffffU);
      int slot = -1;
      if (local >= 0) {
        slot = atomicAdd(&memory_.counts[local], 1);
        // Ids that name an expert twice, which is reported, may be more than there is room for.
        if (slot >= ExchangeSlotsMax(group_.shape)) slot = -1;
      }
      if (slot >= 0) {
        step_.rows.row_index[slot] =
            static_cast<std::int32_t>(ExchangeLayout::Place(group_.shape, 0, source, token));
      }
      step_.rows.slots[choice + i] = slot;
      step_.rows.weights[choice + i] = __uint_as_float(weights[i]);
    }
  }

  __device__ __forceinline__ void WriteOffsets() const {
    for (int e = Thread(); e <= group_.shape.experts_of_rank; e += Threads()) {
      step_.rows.offsets[e] = memory_.offsets[e];
    }
  }

  const ExchangeRank& group_;
  const ExchangeStep& step_;
  const std::uint32_t hash_;
  NormalState& state_;
  const std::uint32_t number_;
  Words words_;
  Memory& memory_;
};

}  // namespace switchyard::cuda
