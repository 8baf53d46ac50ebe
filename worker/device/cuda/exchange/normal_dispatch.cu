// The first CTAs make the lists. The warps of the others send some columns of a token each, and the
// last CTA to have sent its share tells all ranks so and waits for their word. With messages one
// kernel does what comes before they travel, and another the rest.
#include <algorithm>

#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/message_marks.cuh"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal.h"
#include "worker/device/cuda/exchange/normal_lists.cuh"
#include "worker/device/cuda/exchange/normal_words.cuh"
#include "worker/device/cuda/exchange/row_columns.cuh"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {
namespace {

struct DispatchArguments {
  ExchangeRank group;
  ExchangeStep step;
  std::uint32_t hash;
};

template <ExchangeFormat kFormat, ExchangePart kPart>
__device__ __forceinline__ void SendColumns(const ExchangeRank& group, const ExchangeStep& step,
                                            int token, int part) {
  const ExchangeShape& shape = group.shape;
  const Columns<kFormat> columns(step.x + static_cast<std::int64_t>(token) * shape.hidden,
                                 shape.hidden, part);
  const Wanted wanted = AskFor(group, step, token);
  const int place = PlaceOf(shape, step, wanted.id);
  const std::uint32_t rank = place >= 0 ? 1U << (place / shape.experts_of_rank) : 0;
  uint4 words[2];
  columns.Encode(step.global_scale, words);
  std::uint32_t ranks = __reduce_or_sync(kAllLanes, rank) & ~wanted.lost;
  const Units<kFormat> units(shape.hidden, part);
  const std::int64_t row = group.layout.Row(shape, 0, group.rank, token);
  // Each rank begins with the one after it, so that no two send to one at the same time.
  for (int turn = 1; turn <= shape.ranks; ++turn) {
    const int to = (group.rank + turn) % shape.ranks;
    if ((ranks >> to & 1U) == 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (units.at[i] >= 0) StoreSystem(group.heaps[to] + row + units.at[i], words[i]);
    }
    // The row is in the outbox, for all others.
    if (kPart == ExchangePart::kSend && to != group.rank) ranks &= 1U << group.rank;
  }
}

// This CTA's share of the rows, of `senders` CTAs from kListCtas on.
template <ExchangeFormat kFormat, ExchangePart kPart>
__device__ __forceinline__ void SendRowsOfCta(const DispatchArguments& args,
                                              std::uint32_t senders) {
  const int parts = PartsOf(kFormat, args.group.shape.hidden);
  const auto warps = static_cast<int>(senders * blockDim.x / 32);
  // Warps of different SMs have the parts of a row.
  const auto first = static_cast<int>(threadIdx.x / 32 * senders + blockIdx.x - kListCtas);
  for (int i = first; i < args.step.tokens * parts; i += warps) {
    SendColumns<kFormat, kPart>(args.group, args.step, i / parts, i % parts);
  }
}

// By one CTA of the rank, a thread for each other rank: their rows are there when it ends, or they
// are lost.
template <bool kSealed>
__device__ __forceinline__ void AwaitRows(const ExchangeRank& group, const Words& words) {
  const auto source = static_cast<int>(threadIdx.x);
  uint4 said;
  if (source < group.shape.ranks && source != group.rank) {
    (void)(kSealed ? words.AwaitSeal(source, kRowsWord, &said)
                   : words.Await(source, kRowsWord, &said));
  }
}

template <ExchangeFormat kFormat>
__global__ void __launch_bounds__(kNormalThreads, 2)
    DispatchKernel(const __grid_constant__ DispatchArguments args) {
  __shared__ NormalLists::Memory memory;
  const ExchangeRank& group = args.group;
  StepNumber asked(&group.state->dispatch_parts);
  const std::uint32_t number = asked.Get();
  if (blockIdx.x < kListCtas) {
    NormalLists(group, args.step, args.hash, number, &memory).Make();
    if (blockIdx.x == 0) CheckChoices(group, args.step, number);
  } else {
    const std::uint32_t senders = gridDim.x - kListCtas;
    SendRowsOfCta<kFormat, ExchangePart::kWhole>(args, senders);
    Words words(group, number);
    words.MeanStep(args.hash, args.step.cover);
    const bool is_last = words.IsLast(&group.state->normal.rows_sent, senders);
    if (is_last) words.Tell(kRowsWord, 0, 0);
    if (__syncthreads_or(is_last ? 1 : 0) != 0) AwaitRows<false>(group, words);
  }
  EndStep(&group.state->dispatch_parts);
}

template <ExchangeFormat kFormat>
__global__ void __launch_bounds__(kNormalThreads, 2)
    SendKernel(const __grid_constant__ DispatchArguments args) {
  __shared__ NormalLists::Memory memory;
  const ExchangeRank& group = args.group;
  StepNumber asked(&group.state->dispatch_parts);
  const std::uint32_t number = asked.Get();
  MarkBegun(group, number, Message::kRows);
  if (blockIdx.x < kListCtas) {
    NormalLists(group, args.step, args.hash, number, &memory).WriteTable();
  } else {
    SendRowsOfCta<kFormat, ExchangePart::kSend>(args, gridDim.x - kListCtas);
  }
}

__global__ void __launch_bounds__(kNormalThreads, 2)
    LandKernel(const __grid_constant__ DispatchArguments args) {
  __shared__ NormalLists::Memory memory;
  const ExchangeRank& group = args.group;
  StepNumber asked(&group.state->dispatch_parts);
  const std::uint32_t number = asked.Get();
  Words words(group, number);
  words.MeanStep(args.hash, args.step.cover);
  MarkArrived(group, number, Message::kRows, words);
  if (blockIdx.x < kListCtas) {
    NormalLists(group, args.step, args.hash, number, &memory).MakeOfTables<true>();
    if (blockIdx.x == 0) CheckChoices(group, args.step, number);
  } else {
    AwaitRows<true>(group, words);
  }
  EndStep(&group.state->dispatch_parts);
}

// CTAs that send rows.
int SendersOf(const ExchangeRank& rank, const ExchangeStep& step) {
  const int parts = PartsOf(step.format, rank.shape.hidden);
  const int ctas_max = std::max(2 * rank.sms - kListCtas, 1);
  return std::clamp(step.cover * parts * 32 / kNormalThreads, 1, ctas_max);
}

cudaError_t Launch(void (*kernel)(DispatchArguments), const ExchangeRank& rank,
                   const ExchangeStep& step, int ctas, cudaStream_t stream) {
  return LaunchExchange(kernel, DispatchArguments{rank, step, StepHash(rank.shape, step)},
                        kListCtas + ctas, kNormalThreads, 0, false, stream);
}

}  // namespace

cudaError_t DispatchNormal(const ExchangeRank& rank, const ExchangeStep& step,
                           cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || !IsNormal(rank.shape) || rank.shape.by_messages) {
    return cudaErrorInvalidValue;
  }
  const auto kernel =
      WithFormat(step.format, [](auto format) { return &DispatchKernel<decltype(format)::value>; });
  return Launch(kernel, rank, step, SendersOf(rank, step), stream);
}

cudaError_t WriteRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                             cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || !rank.shape.by_messages) return cudaErrorInvalidValue;
  const auto kernel =
      WithFormat(step.format, [](auto format) { return &SendKernel<decltype(format)::value>; });
  return Launch(kernel, rank, step, SendersOf(rank, step), stream);
}

cudaError_t ListRowMessages(const ExchangeRank& rank, const ExchangeStep& step,
                            cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || !rank.shape.by_messages) return cudaErrorInvalidValue;
  return Launch(&LandKernel, rank, step, 1, stream);
}

}  // namespace switchyard::cuda
