// The table of a step: which experts the tokens of each source want, as every rank is told. A thread
// has one packet of a token, and of the tokens of every source those that are a step apart.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/low_latency.h"

namespace switchyard::cuda {

struct PacketShare {
  __device__ __forceinline__ explicit PacketShare(int packets_of_token)
      : packets(packets_of_token),
        tokens_apart(static_cast<int>(blockDim.x) / packets_of_token),
        packet(static_cast<int>(threadIdx.x) % packets_of_token),
        first_token(static_cast<int>(threadIdx.x) / packets_of_token < tokens_apart
                        ? static_cast<int>(threadIdx.x) / packets_of_token
                        : kExchangeTokensMax) {}

  const int packets;  // of a token
  const int tokens_apart;
  const int packet;
  const int first_token;  // kExchangeTokensMax: none
};

// A choice of a table, as an expert of this rank; -1: of another, or none.
__device__ __forceinline__ int LocalExpert(const ExchangeRank& group, std::uint32_t id) {
  const int local = static_cast<int>(id) - group.rank * group.shape.experts_of_rank;
  return local >= 0 && local < group.shape.experts_of_rank ? local : -1;
}

__device__ __forceinline__ std::uint32_t ShapeHash(const ExchangeShape& shape) {
  std::uint32_t hash = 2166136261U;
  for (const int part : {shape.ranks, shape.tokens_max, shape.hidden, shape.top_k,
                         shape.experts_of_rank, ExpertsOf(shape), static_cast<int>(shape.format), static_cast<int>(shape.unit)}) {
    hash = (hash ^ static_cast<std::uint32_t>(part)) * 16777619U;
  }
  return hash;
}

__device__ __forceinline__ std::uint32_t IdBits(const ExchangeShape& shape, std::int32_t id) {
  return id >= 0 && id < ExpertsOf(shape) ? static_cast<std::uint32_t>(id) : 0xffffU;
}

__device__ __forceinline__ uint4 PacketOf(const ExchangeShape& shape, const ExchangeStep& step,
                                          int token, int packet, std::uint32_t tag) {
  const int choice = 2 * packet;
  const int at = token * shape.top_k + choice;
  std::int32_t ids[2] = {-1, -1};
  float weights[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (choice + i >= shape.top_k) continue;
    ids[i] = step.ids[at + i];
    weights[i] = step.weights[at + i];
  }
  return make_uint4(IdBits(shape, ids[0]) | IdBits(shape, ids[1]) << 16,
                    __float_as_uint(weights[0]), __float_as_uint(weights[1]), tag);
}

// Tells the host of choices that are none; any of a step.
__device__ __forceinline__ void CheckChoice(const ExchangeRank& group, const ExchangeStep& step,
                                            std::uint32_t number, int token, int choice) {
  const int row = token * group.shape.top_k;
  const std::int32_t id = step.ids[row + choice];
  if (id == -1) return;
  const bool is_expert = id >= 0 && id < ExpertsOf(group.shape);
  bool twice = false;
  for (int earlier = 0; earlier < choice; ++earlier) twice |= step.ids[row + earlier] == id;
  if (is_expert && !twice) return;
  const std::uint32_t place =
      static_cast<std::uint32_t>(row + choice + 1) | (is_expert ? kChosenTwice : 0);
  const std::uint64_t report = static_cast<std::uint64_t>(number) << 32 | place;
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(
                   &group.report->choices[number % kExchangeReports]),
               "l"(report)
               : "memory");
}

// Tells every rank, this one too, how many tokens come and which experts they want. By one CTA.
__device__ __forceinline__ void Announce(const ExchangeRank& group, const ExchangeStep& step,
                                         std::uint32_t number) {
  const ExchangeShape& shape = group.shape;
  const std::uint32_t tag = TagOf(group, number);
  const auto buffer = static_cast<int>(number % kExchangeBuffers);
  const auto tid = static_cast<int>(threadIdx.x);
  if (tid < shape.ranks) {
    const auto sizes = static_cast<std::uint32_t>(step.tokens | step.cover << 16);
    StoreSystem(group.heaps[tid] + group.layout.Header(shape, buffer, group.rank),
                make_uint4(sizes, ShapeHash(shape), 0, tag));
  }
  const PacketShare share(group.layout.packets);
  for (int token = share.first_token; token < step.tokens; token += share.tokens_apart) {
    const uint4 words = PacketOf(shape, step, token, share.packet, tag);
    const std::int64_t at = group.layout.Packet(shape, buffer, group.rank, token, share.packet);
    for (int turn = 1; turn <= shape.ranks; ++turn) {
      int to = group.rank + turn;
      if (to >= shape.ranks) to -= shape.ranks;
      StoreSystem(group.heaps[to] + at, words);
    }
  }
  if (group.report == nullptr) return;
  // After all of them are on their way.
  for (int token = share.first_token; token < step.tokens; token += share.tokens_apart) {
    for (int choice = 2 * share.packet; choice < min(2 * share.packet + 2, shape.top_k); ++choice) {
      CheckChoice(group, step, number, token, choice);
    }
  }
}

}  // namespace switchyard::cuda
