// The lists of a dispatch: which rows each expert of this rank has, and which slot each choice of a
// token got. One CTA makes them from the tables of all sources, while rows are on their way.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/exchange/list_memory.cuh"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {

constexpr int kSourcesInFlight = 4;

class ListMaker {
 public:
  __device__ __forceinline__ ListMaker(const ExchangeRank& group, const ExchangeStep& step,
                                       std::uint32_t hash, std::uint32_t number, void* memory)
      : group_(group),
        step_(step),
        hash_(hash),
        number_(number),
        tag_(TagOf(number)),
        buffer_(static_cast<int>(number % kExchangeBuffers)),
        share_(group.layout.packets),
        memory_(memory, group.shape, step.cover) {}

  __device__ __forceinline__ void Make() {
    const int experts = group_.shape.experts_of_rank;
    const auto tid = static_cast<int>(threadIdx.x);
    const auto threads = static_cast<int>(blockDim.x);
    for (int e = tid; e < experts; e += threads) memory_.counts[e] = 0;
    __syncthreads();
    ReadTables();
    // By the last warp, which has the fewest tokens.
    if (tid >= threads - 32) CheckHeader(tid - (threads - 32));
    __syncthreads();
    if (tid < 32) AddUp(memory_.counts, memory_.offsets, experts);
    __syncthreads();
    PlaceRows();
    for (int e = tid; e <= experts; e += threads) {
      if (e < experts) step_.rows.counts[e] = memory_.counts[e];
      step_.rows.offsets[e] = memory_.offsets[e];
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ const std::byte* HeaderOf(int source) const {
    return group_.heaps[group_.rank] + group_.layout.Header(group_.shape, buffer_, source);
  }

  // Waits for the headers of all ranks, also of those without tokens: what a rank writes next may
  // go into the buffer that the others have emptied only because they have waited for it here.
  __device__ __forceinline__ void CheckHeader(int source) const {
    if (source >= group_.shape.ranks) return;
    Patience patience;
    while (true) {
      const uint4 header = LoadSystem(HeaderOf(source));
      if (header.w == tag_) {
        const bool alike = header.y == hash_ && static_cast<int>(header.x >> 16) == step_.cover;
        if (!alike) Lose(group_, source, number_, ExchangeFault::kMismatch);
        return;
      }
      if (patience.Over(group_, source, number_)) return;
    }
  }

  // The packets of some sources at a time: each is as far away as memory.
  __device__ __forceinline__ void ReadTables() const {
    for (int token = share_.first_token; token < step_.cover; token += share_.tokens_apart) {
      for (int first = 0; first < group_.shape.ranks; first += kSourcesInFlight) {
        uint4 words[kSourcesInFlight];
        const std::uint32_t there = ReadPackets(first, token, words);
#pragma unroll
        for (int s = 0; s < kSourcesInFlight; ++s) {
          if (first + s >= group_.shape.ranks) continue;
          Enter(first + s, token, (there >> s & 1U) != 0, words[s]);
        }
      }
    }
  }

  // A bit for each source from `first` on whose packet is there. Others have no such token.
  __device__ __forceinline__ std::uint32_t ReadPackets(int first, int token,
                                                       uint4 (&words)[kSourcesInFlight]) const {
    const std::byte* own = group_.heaps[group_.rank];
    const int count = min(kSourcesInFlight, group_.shape.ranks - first);
    std::uint32_t awaited = (1U << count) - 1;
    std::uint32_t there = 0;
    Patience patience;
    while (awaited != 0) {
      uint4 headers[kSourcesInFlight];
#pragma unroll
      for (int s = 0; s < kSourcesInFlight; ++s) {
        if ((awaited >> s & 1U) == 0) continue;
        words[s] = LoadSystem(
            own + group_.layout.Packet(group_.shape, buffer_, first + s, token, share_.packet));
        headers[s] = LoadSystem(HeaderOf(first + s));
      }
#pragma unroll
      for (int s = 0; s < kSourcesInFlight; ++s) {
        if ((awaited >> s & 1U) == 0) continue;
        const bool here = words[s].w == tag_;
        const bool absent =
            headers[s].w == tag_ && token >= static_cast<int>(headers[s].x & 0xffffU);
        if (here || absent) awaited &= ~(1U << s);
        if (here) there |= 1U << s;
      }
      if (awaited == 0) break;
      const int late = __ffs(static_cast<int>(awaited)) - 1;
      if (patience.Over(group_, first + late, number_)) awaited &= ~(1U << late);
    }
    return there;
  }

  // Where the two choices of this thread's packet are in lists of choices.
  [[nodiscard]] __device__ __forceinline__ int EntryOf(int source, int token) const {
    return ((source * step_.cover + token) * share_.packets + share_.packet) * 2;
  }
  [[nodiscard]] __device__ __forceinline__ int ChoiceOf(int source, int token) const {
    return (source * group_.shape.tokens_max + token) * group_.shape.top_k + 2 * share_.packet;
  }

  __device__ __forceinline__ void Enter(int source, int token, bool there, uint4 words) const {
    const std::uint32_t weights[2] = {words.y, words.z};
    const int entry = EntryOf(source, token);
    const int choice = ChoiceOf(source, token);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int local = there ? LocalExpert(group_, words.x >> (16 * i) & 0xffffU) : -1;
      memory_.entries[entry + i] =
          local < 0
              ? kNoEntry
              : static_cast<std::uint32_t>(local << 16 | atomicAdd(&memory_.counts[local], 1));
      if (!there || 2 * share_.packet + i >= group_.shape.top_k) continue;
      step_.rows.weights[choice + i] = __uint_as_float(weights[i]);
    }
  }

  // Each thread has its own entries again.
  __device__ __forceinline__ void PlaceRows() const {
    for (int token = share_.first_token; token < step_.cover; token += share_.tokens_apart) {
#pragma unroll 4
      for (int source = 0; source < group_.shape.ranks; ++source) {
        const int choice = ChoiceOf(source, token);
        const auto row =
            static_cast<std::int32_t>(ExchangeLayout::Place(group_.shape, buffer_, source, token));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (2 * share_.packet + i >= group_.shape.top_k) continue;
          const std::uint32_t entry = memory_.entries[EntryOf(source, token) + i];
          int slot = -1;
          if (entry != kNoEntry) {
            slot = memory_.offsets[entry >> 16] + static_cast<int>(entry & 0xffffU);
            step_.rows.row_index[slot] = row;
          }
          step_.rows.slots[choice + i] = slot;
        }
      }
    }
  }

  const ExchangeRank& group_;
  const ExchangeStep& step_;
  const std::uint32_t hash_;
  const std::uint32_t number_;
  const std::uint32_t tag_;
  const int buffer_;
  const PacketShare share_;
  const ListMemory memory_;
};

}  // namespace switchyard::cuda
