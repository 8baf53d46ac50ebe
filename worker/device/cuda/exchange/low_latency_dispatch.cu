// CTA 0 makes the lists. The warps of the others have some columns of a token each: they announce
// the token, send the columns, poison what the step before left, and wait for the same columns of
// the same token of every source.
#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/expert_lists.cuh"
#include "worker/device/cuda/exchange/low_latency.h"
#include "worker/device/cuda/exchange/row_columns.cuh"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kThreadsMax = 512;
constexpr int kSourcesAtOnce = 4;
constexpr int kDependentTokensMax = 16;
constexpr int kUnitsOfPoison = 64;  // that a warp writes of a row at once

struct DispatchArguments {
  ExchangeRank group;
  ExchangeStep step;
  std::uint32_t hash;
};

template <ExchangeFormat kFormat>
class RowWarp {
 public:
  __device__ __forceinline__ RowWarp(const ExchangeRank& group, const ExchangeStep& step)
      : group_(group), step_(step) {}

  // Everything is asked for before anything is waited for. The warp of a token's first columns
  // tells all ranks which experts the token wants, before its row: who makes the lists waits for
  // all.
  __device__ __forceinline__ void Send(int token, int part, StepNumber* number) {
    if (token >= step_.tokens) return;
    const Columns<kFormat> columns(step_.x + static_cast<std::int64_t>(token) * group_.shape.hidden,
                                   group_.shape.hidden, part);
    const Wanted wanted = AskFor(group_, step_, token);
    if (part == 0) {
      Announce(token, number);
    } else {
      Begin(number->Get());
    }
    uint4 words[2];
    columns.Encode(step_.global_scale, words);
    const std::uint32_t ranks = RanksOf(wanted);
    const Units<kFormat> units(group_.shape.hidden, part);
    const std::int64_t row = group_.layout.Row(group_.shape, buffer_, group_.rank, token);
    for (int turn = 1; turn <= group_.shape.ranks; ++turn) {
      const int to = (group_.rank + turn) % group_.shape.ranks;
      if ((ranks >> to & 1U) == 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (units.at[i] >= 0) StoreSystem(group_.heaps[to] + row + units.at[i], words[i]);
      }
    }
  }

  // Before Poison and Receive.
  __device__ __forceinline__ void Begin(std::uint32_t number) {
    number_ = number;
    buffer_ = static_cast<int>(number % kExchangeBuffers);
  }

  // Makes units of what was read in the step before poison again. Its rows are read by then,
  // because the kernels that did come before this one.
  __device__ __forceinline__ void Poison(int token, int part, int units) const {
    const int before = static_cast<int>((number_ + kExchangeBuffers - 1) % kExchangeBuffers);
    const int first = part * kUnitsOfPoison + static_cast<int>(threadIdx.x % 32);
    for (int source = 0; source < group_.shape.ranks; ++source) {
      if (source == group_.rank) continue;  // its rows are not waited for
      std::byte* row =
          group_.heaps[group_.rank] + group_.layout.Row(group_.shape, before, source, token);
#pragma unroll
      for (int i = 0; i < kUnitsOfPoison / 32; ++i) {
        const int unit = first + i * 32;
        if (unit < units) StorePoison(row + unit * 16);
      }
    }
  }

  __device__ __forceinline__ void Receive(int token, int part) const {
    const Units<kFormat> units(group_.shape.hidden, part);
    std::uint32_t awaited = SourcesOf(token);
    Patience patience;
    while (awaited != 0) {
#pragma unroll
      for (int first = 0; first < kExchangeRanksMax; first += kSourcesAtOnce) {
        awaited &= ~Landed(awaited, first, token, units);
      }
      if (awaited == 0) break;
      const int late = __ffs(static_cast<int>(awaited)) - 1;
      if (__any_sync(kAllLanes, patience.Over(group_, late, number_))) awaited &= ~(1U << late);
    }
  }

 private:
  // Sends the packets of a token to every rank, this one too.
  __device__ __forceinline__ void Announce(int token, StepNumber* number) {
    const int packets = group_.layout.packets;
    for (int i = static_cast<int>(threadIdx.x % 32); i < group_.shape.ranks * packets; i += 32) {
      const int packet = i % packets;
      uint4 words = PacketOf(group_.shape, step_, token, packet);
      Begin(number->Get());
      words.w = TagOf(number_);
      int to = group_.rank + 1 + i / packets;
      if (to >= group_.shape.ranks) to -= group_.shape.ranks;
      StoreSystem(group_.heaps[to] +
                      group_.layout.Packet(group_.shape, buffer_, group_.rank, token, packet),
                  words);
    }
    Begin(number->Get());  // lanes without a packet
  }

  // Which of kSourcesAtOnce sources from `first` on are awaited and there.
  __device__ __forceinline__ std::uint32_t Landed(std::uint32_t awaited, int first, int token,
                                                  const Units<kFormat>& units) const {
    std::uint32_t words[kSourcesAtOnce][2];
#pragma unroll
    for (int s = 0; s < kSourcesAtOnce; ++s) {
      if ((awaited >> (first + s) & 1U) == 0) continue;
      const std::byte* row =
          group_.heaps[group_.rank] + group_.layout.Row(group_.shape, buffer_, first + s, token);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (units.at[i] >= 0) words[s][i] = LoadWord(row + units.at[i]);  // the first
      }
    }
    std::uint32_t landed = 0;
#pragma unroll
    for (int s = 0; s < kSourcesAtOnce; ++s) {
      if ((awaited >> (first + s) & 1U) == 0) continue;
      bool there = true;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (units.at[i] >= 0 && words[s][i] == kPoison) there = false;
      }
      if (__all_sync(kAllLanes, there)) landed |= 1U << (first + s);
    }
    return landed;
  }

  // The ranks that have an expert of the token and are there.
  __device__ __forceinline__ std::uint32_t RanksOf(const Wanted& wanted) const {
    std::uint32_t rank = 0;
    const int place = PlaceOf(group_.shape, step_, wanted.id);
    if (place >= 0) rank = 1U << (place / group_.shape.experts_of_rank);
    return __reduce_or_sync(kAllLanes, rank) & ~wanted.lost;
  }

  // The other sources that send this token here. Their tables say so; a header alone, that a source
  // has no such token.
  __device__ __forceinline__ std::uint32_t SourcesOf(int token) const {
    const std::uint32_t tag = TagOf(number_);
    const int packets = group_.layout.packets;
    std::uint32_t sources = 0;
    for (int i = static_cast<int>(threadIdx.x % 32); i < group_.shape.ranks * packets; i += 32) {
      const int source = i / packets;
      if (source == group_.rank) continue;
      const std::byte* own = group_.heaps[group_.rank];
      const std::byte* header = own + group_.layout.Header(group_.shape, buffer_, source);
      const std::byte* packet =
          own + group_.layout.Packet(group_.shape, buffer_, source, token, i % packets);
      Patience patience;
      while (true) {
        const uint4 words = LoadSystem(packet);
        if (words.w == tag) {
          if (LocalExpert(group_, words.x & 0xffffU) >= 0 ||
              LocalExpert(group_, words.x >> 16) >= 0) {
            sources |= 1U << source;
          }
          break;
        }
        const uint4 sizes = LoadSystem(header);
        if (sizes.w == tag && token >= static_cast<int>(sizes.x & 0xffffU)) break;
        if (patience.Over(group_, source, number_)) break;
      }
    }
    return __reduce_or_sync(kAllLanes, sources);
  }

  const ExchangeRank& group_;
  const ExchangeStep& step_;
  std::uint32_t number_ = 0;
  int buffer_ = 0;
};

// Holds what the steps in each buffer have covered; asked for before the step's number is known.
struct Covered {
  __device__ __forceinline__ explicit Covered(const ExchangeState& state) {
#pragma unroll
    for (int i = 0; i < kExchangeBuffers; ++i) of[i] = LoadRelaxed(&state.covered[i]);
  }
  // Returns that of the step before `number`.
  __device__ __forceinline__ std::uint32_t Before(std::uint32_t number) const {
    const std::uint32_t before = (number + kExchangeBuffers - 1) % kExchangeBuffers;
    std::uint32_t found = of[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kExchangeBuffers; ++i) found = before == i ? of[i] : found;
    return found;
  }
  std::uint32_t of[kExchangeBuffers];
};

template <ExchangeFormat kFormat>
__global__ void __launch_bounds__(kThreadsMax, 2)
    DispatchKernel(const __grid_constant__ DispatchArguments args) {
  extern __shared__ __align__(16) std::byte memory[];
  const ExchangeRank& group = args.group;
  WaitForPrecedingKernels();
  StepNumber asked(&group.state->dispatch_parts);
  if (blockIdx.x == 0) {
    const std::uint32_t number = asked.Get();
    AnnounceSizes(group, args.step, args.hash, number);
    AllowDependentLaunch();
    ListMaker(group, args.step, args.hash, number, memory).Make();
    CheckChoices(group, args.step, number);
    if (threadIdx.x == 0) {
      const int units = RowBytesOf(kFormat, group.shape.hidden) / 16;
      group.state->covered[number % kExchangeBuffers] =
          static_cast<std::uint32_t>(args.step.cover | units << 16);
    }
  } else {
    const Covered covered(*group.state);
    RowWarp<kFormat> warp(group, args.step);
    const int parts = PartsOf(kFormat, group.shape.hidden);
    const auto warps = static_cast<int>((gridDim.x - 1) * blockDim.x / 32);
    const auto first = static_cast<int>((blockIdx.x - 1) * blockDim.x / 32 + threadIdx.x / 32);
    const int all = args.step.cover * parts;
    for (int i = first; i < all; i += warps) warp.Send(i / parts, i % parts, &asked);
    AllowDependentLaunch();  // not before the stores, beside which the next kernel would start
    const std::uint32_t number = asked.Get();
    warp.Begin(number);
    const std::uint32_t before = covered.Before(number);
    const auto units = static_cast<int>(before >> 16);
    const int parts_before = (units + kUnitsOfPoison - 1) / kUnitsOfPoison;
    const bool gets_rows = HasExperts(group.shape, group.rank);
    const int left = gets_rows ? static_cast<int>(before & 0xffffU) * parts_before : 0;
    for (int i = first; i < left; i += warps) {
      warp.Poison(i / parts_before, i % parts_before, units);
    }
    for (int i = first; i < all; i += warps) warp.Receive(i / parts, i % parts);
  }
  EndStep(&group.state->dispatch_parts);
}

}  // namespace

cudaError_t DispatchLowLatency(const ExchangeRank& rank, const ExchangeStep& step, bool dependent,
                               cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || IsNormal(rank.shape)) return cudaErrorInvalidValue;
  // As many warps as rows have parts, in CTAs that all run at once.
  const int parts = PartsOf(step.format, rank.shape.hidden);
  const int shared = ListMemory::Bytes(rank.shape, step.cover);
  constexpr int kSharedOfTwo = 100 << 10;  // so that two CTAs share an SM
  const int sms = std::min(rank.sms, 128);
  const int ctas_max = std::max(shared <= kSharedOfTwo ? 2 * sms : sms, 2) - 1;
  const int warps = std::clamp(step.cover / 8, 2, kThreadsMax / 32);
  const int ctas = std::min((step.cover * parts + warps - 1) / warps, ctas_max);
  const auto kernel =
      WithFormat(step.format, [](auto format) { return &DispatchKernel<decltype(format)::value>; });
  // A dispatch of more tokens is slower where it starts early behind combine; why is not known
  // (docs/PERFORMANCE.md#the-exchange-between-gpus).
  return LaunchExchange(kernel, DispatchArguments{rank, step, StepHash(rank.shape, step)}, 1 + ctas,
                        warps * 32, shared, dependent && step.cover <= kDependentTokensMax, stream);
}

}  // namespace switchyard::cuda
