// The table of a step: which experts the tokens of each source want, as every rank is told. A
// thread has one packet of a token, and of the tokens of every source those that are a step apart.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/exchange_rank.h"

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

// A lane's choice of one of this rank's tokens, and the ranks that are lost. Both are asked for at
// once, and nothing waits for them before they are used.
struct Wanted {
  std::int32_t id = -1;
  std::uint32_t lost = 0;
};
__device__ __forceinline__ Wanted AskFor(const ExchangeRank& group, const ExchangeStep& step,
                                         int token) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  Wanted wanted;
  if (lane < group.shape.top_k) wanted.id = step.ids[token * group.shape.top_k + lane];
  wanted.lost = LoadRelaxed(&group.state->lost);
  return wanted;
}

// Where an expert is, as steps are sent; -1: it is none.
__device__ __forceinline__ int PlaceOf(const ExchangeShape& shape, const ExchangeStep& step,
                                       std::int32_t id) {
  if (id < 0 || id >= ExpertsOf(shape)) return -1;
  return step.places == nullptr ? id : step.places[id];
}

// A choice of a table, as an expert of this rank; -1: of another, or none.
__device__ __forceinline__ int LocalExpert(const ExchangeRank& group, std::uint32_t id) {
  const int local = static_cast<int>(id) - group.rank * group.shape.experts_of_rank;
  return local >= 0 && local < group.shape.experts_of_rank ? local : -1;
}

__device__ __forceinline__ std::uint32_t IdBits(const ExchangeShape& shape, std::int32_t id) {
  return id >= 0 && id < ExpertsOf(shape) ? static_cast<std::uint32_t>(id) : 0xffffU;
}

// Without the tag.
__device__ __forceinline__ uint4 PacketOf(const ExchangeShape& shape, const ExchangeStep& step,
                                          int token, int packet) {
  const int choice = 2 * packet;
  const int at = token * shape.top_k + choice;
  std::int32_t ids[2] = {-1, -1};
  float weights[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (choice + i >= shape.top_k) continue;
    ids[i] = PlaceOf(shape, step, step.ids[at + i]);
    weights[i] = step.weights[at + i];
  }
  return make_uint4(IdBits(shape, ids[0]) | IdBits(shape, ids[1]) << 16,
                    __float_as_uint(weights[0]), __float_as_uint(weights[1]), 0);
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

// Tells every rank, this one too, how many tokens come. By one CTA.
__device__ __forceinline__ void AnnounceSizes(const ExchangeRank& group, const ExchangeStep& step,
                                              std::uint32_t hash, std::uint32_t number) {
  const auto to = static_cast<int>(threadIdx.x);
  if (to >= group.shape.ranks) return;
  const auto buffer = static_cast<int>(number % kExchangeBuffers);
  const auto sizes = static_cast<std::uint32_t>(step.tokens | step.cover << 16);
  StoreSystem(group.heaps[to] + group.layout.Header(group.shape, buffer, group.rank),
              make_uint4(sizes, hash, 0, TagOf(number)));
}

// Tells the host of choices of this rank's tokens that are none. By one CTA.
__device__ __forceinline__ void CheckChoices(const ExchangeRank& group, const ExchangeStep& step,
                                             std::uint32_t number) {
  if (group.report == nullptr) return;
  const int top_k = group.shape.top_k;
  for (int i = static_cast<int>(threadIdx.x); i < step.tokens * top_k;
       i += static_cast<int>(blockDim.x)) {
    CheckChoice(group, step, number, i / top_k, i % top_k);
  }
}

}  // namespace switchyard::cuda
