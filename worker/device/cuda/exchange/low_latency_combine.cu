// A CTA has a token of each rank, or some columns of it: it sums this rank's experts for the token
// of every source, sends the sums, and then adds what all ranks have sent for its own token.
#include "worker/device/cuda/exchange/answer_math.cuh"
#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/low_latency.h"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kCtasMax = 128;  // that run at once, an SM each
constexpr int kWarpsMax = 16;  // so a thread has 128 registers, for the loads of kUnitsAtOnce
constexpr int kChoicesAtOnce = 4;
constexpr int kUnitsAtOnce = 4;
constexpr int kTermsAtOnce = 4;
constexpr int kPartsMax = 8;
constexpr int kUnitsMin = 128;  // of a part; a unit is eight columns

struct CombineArguments {
  ExchangeRank group;
  ExchangeStep step;
  const std::uint16_t* answers;
  std::byte* out;
  bool fp32;  // out
  int parts;  // of a row, each for a CTA
};

// The choices of a token of a source that this rank has experts for, in ascending order.
struct Choices {
  int count;
  int numbers[kExchangeTopKMax];
  int slots[kExchangeTopKMax];
  float weights[kExchangeTopKMax];
};

template <ExchangeUnit kUnit>
class Combiner {
 public:
  static constexpr bool kPerWorker = kUnit == ExchangeUnit::kPerWorker;

  __device__ __forceinline__ explicit Combiner(const CombineArguments& args)
      : args_(args), group_(args.group) {}

  // Before the first Send and Receive.
  __device__ __forceinline__ void Begin(std::uint32_t number) {
    number_ = number;
    buffer_ = static_cast<int>(number % kExchangeBuffers);
  }

  // By one warp for each source.
  __device__ __forceinline__ void ReadChoices(int source, int token, Choices* choices) const {
    const int top_k = group_.shape.top_k;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int at = (source * group_.shape.tokens_max + token) * top_k + lane;
    const int slot = lane < top_k ? args_.step.rows.slots[at] : -1;
    const float weight = lane < top_k ? args_.step.rows.weights[at] : 0.0F;
    const std::uint32_t here = __ballot_sync(kAllLanes, slot >= 0);
    if (slot >= 0) {
      const int place = __popc(here & ((1U << lane) - 1));
      choices->numbers[place] = lane;
      choices->slots[place] = slot;
      choices->weights[place] = weight;
    }
    if (lane == 0) choices->count = __popc(here);
  }

  // A unit of the first choices from `first` on.
  __device__ __forceinline__ void Load(const Choices& choices, int first, int unit,
                                       uint4 (&words)[kChoicesAtOnce]) const {
#pragma unroll
    for (int i = 0; i < kChoicesAtOnce; ++i) {
      if (first + i >= choices.count) continue;
      const auto* answer = reinterpret_cast<const uint4*>(
          args_.answers +
          static_cast<std::int64_t>(choices.slots[first + i]) * group_.shape.hidden);
      words[i] = answer[unit];
    }
  }
  // A unit of the sum over this rank's experts, of which Load has loaded the first.
  [[nodiscard]] __device__ __forceinline__ uint4 Sum(const Choices& choices, int unit,
                                                     uint4 (&words)[kChoicesAtOnce]) const {
    float sums[8] = {};
    for (int first = 0; first < choices.count; first += kChoicesAtOnce) {
      if (first > 0) Load(choices, first, unit, words);
#pragma unroll
      for (int i = 0; i < kChoicesAtOnce; ++i) {
        if (first + i >= choices.count) continue;
        AddUnit(words[i], choices.weights[first + i], sums);
      }
    }
    return WithoutPoison(RoundedUnit(sums));
  }
  __device__ __forceinline__ void Send(int source, int token, int unit, uint4 sum) const {
    StoreSystem(group_.heaps[source] +
                    group_.layout.Answer(group_.shape, buffer_, group_.rank, token) + unit * 16,
                sum);
  }
  // A unit of each choice as it is, of which Load has loaded the first.
  __device__ __forceinline__ void SendAll(int source, int token, const Choices& choices, int unit,
                                          uint4 (&words)[kChoicesAtOnce]) const {
    for (int first = 0; first < choices.count; first += kChoicesAtOnce) {
      if (first > 0) Load(choices, first, unit, words);
#pragma unroll
      for (int i = 0; i < kChoicesAtOnce; ++i) {
        if (first + i >= choices.count) continue;
        const Choice choice{choices.numbers[first + i]};
        StoreSystem(group_.heaps[source] +
                        group_.layout.Answer(group_.shape, buffer_, token, choice) + unit * 16,
                    WithoutPoison(words[i]));
      }
    }
  }

  // A unit of this rank's own token, from `terms`: the sums of ranks or the rows of choices, in
  // ascending order. `own`: this rank's own sum.
  __device__ __forceinline__ void Receive(std::uint32_t terms, int token, int unit,
                                          uint4 own) const {
    float sums[8] = {};
#pragma unroll 1
    for (int first = 0; terms >> first != 0; first += kTermsAtOnce) {
      AddTerms(terms >> first & ((1U << kTermsAtOnce) - 1), first, token, unit, own, sums);
    }
    const std::int64_t at = static_cast<std::int64_t>(token) * group_.shape.hidden + unit * 8;
    if (!args_.fp32) {
      *reinterpret_cast<uint4*>(args_.out + at * 2) = RoundedUnit(sums);
      return;
    }
    auto* out = reinterpret_cast<float4*>(args_.out + at * 4);
    out[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    out[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }

  // The terms of this rank's token, of ranks that are there: a bit for each rank, or each choice.
  __device__ __forceinline__ std::uint32_t TermsOf(const Wanted& wanted) const {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    std::uint32_t term = 0;
    const int place = PlaceOf(group_.shape, args_.step, wanted.id);
    if (place >= 0) {
      const int rank = place / group_.shape.experts_of_rank;
      if ((wanted.lost >> rank & 1U) == 0) term = 1U << (kPerWorker ? rank : lane);
    }
    return __reduce_or_sync(kAllLanes, term);
  }

 private:
  // Adds `terms`, bits from term `first` on.
  __device__ __forceinline__ void AddTerms(std::uint32_t terms, int first, int token, int unit,
                                           const uint4& own, float (&sums)[8]) const {
    uint4 words[kTermsAtOnce];
    std::uint32_t awaited = terms;
    Patience patience;
#pragma unroll
    for (int i = 0; i < kTermsAtOnce; ++i) {
      if (!kPerWorker || first + i != group_.rank) continue;
      words[i] = own;
      awaited &= ~(1U << i);
    }
    const std::uint32_t landed = awaited;
    while (awaited != 0) {
#pragma unroll
      for (int i = 0; i < kTermsAtOnce; ++i) {
        if ((awaited >> i & 1U) != 0) words[i] = LoadSystem(AnswerOf(first + i, token, unit));
      }
#pragma unroll
      for (int i = 0; i < kTermsAtOnce; ++i) {
        if ((awaited >> i & 1U) != 0 && words[i].x != kPoison) awaited &= ~(1U << i);
      }
      if (awaited == 0) break;
      const int late = __ffs(static_cast<int>(awaited)) - 1;
      if (!patience.Over(group_, RankOf(first + late, token), number_)) continue;
      awaited &= ~(1U << late);
      terms &= ~(1U << late);  // the step is no result
    }
#pragma unroll
    for (int i = 0; i < kTermsAtOnce; ++i) {
      if ((terms >> i & 1U) == 0) continue;
      AddUnit(words[i], WeightOf(first + i, token), sums);
      if ((landed >> i & 1U) != 0) StorePoison(AnswerOf(first + i, token, unit));
    }
  }

  [[nodiscard]] __device__ __forceinline__ std::byte* AnswerOf(int term, int token,
                                                               int unit) const {
    const ExchangeLayout& layout = group_.layout;
    const std::int64_t at = kPerWorker ? layout.Answer(group_.shape, buffer_, term, token)
                                       : layout.Answer(group_.shape, buffer_, token, Choice{term});
    return group_.heaps[group_.rank] + at + unit * 16;
  }
  [[nodiscard]] __device__ __forceinline__ int RankOf(int term, int token) const {
    if (kPerWorker) return term;
    const std::int32_t id = args_.step.ids[token * group_.shape.top_k + term];
    return PlaceOf(group_.shape, args_.step, id) / group_.shape.experts_of_rank;
  }
  [[nodiscard]] __device__ __forceinline__ float WeightOf(int term, int token) const {
    return kPerWorker ? 1.0F : args_.step.weights[token * group_.shape.top_k + term];
  }
  const CombineArguments& args_;
  const ExchangeRank& group_;
  std::uint32_t number_ = 0;
  int buffer_ = 0;
};

// CTA (token, part) of a grid of tokens * parts; more tokens than fit are taken in turns.
template <ExchangeUnit kUnit>
__global__ void __launch_bounds__(kWarpsMax * 32, 1)
    CombineKernel(const __grid_constant__ CombineArguments args) {
  extern __shared__ __align__(16) uint4 own[];  // a part of a row
  __shared__ Choices choices[kExchangeRanksMax];
  const ExchangeRank& group = args.group;
  WaitForPrecedingKernels();
  StepNumber number(&group.state->combine_parts);
  Combiner<kUnit> combiner(args);
  const int ranks = group.shape.ranks;
  const int parts = args.parts;
  const int units = (group.shape.hidden / 8 + parts - 1) / parts;
  const int first = static_cast<int>(blockIdx.x) % parts * units;
  const int last = min(first + units, group.shape.hidden / 8);
  const auto step = static_cast<int>(gridDim.x) / parts;
  const auto warp = static_cast<int>(threadIdx.x / 32);
  const auto warps = static_cast<int>(blockDim.x / 32);
  for (int token = static_cast<int>(blockIdx.x) / parts; token < args.step.cover; token += step) {
    const bool is_own = token < args.step.tokens;
    const Wanted wanted = is_own ? AskFor(group, args.step, token) : Wanted();
    __syncthreads();  // the choices and sums of the token before are used
    for (int source = warp; source < ranks; source += warps) {
      combiner.ReadChoices(source, token, &choices[source]);
    }
    __syncthreads();
    combiner.Begin(number.Get());
    const auto threads = static_cast<int>(blockDim.x);
    for (int i = static_cast<int>(threadIdx.x); i < units * ranks; i += kUnitsAtOnce * threads) {
      // All loads before the first store.
      int sources[kUnitsAtOnce];
      int places[kUnitsAtOnce];
      uint4 words[kUnitsAtOnce][kChoicesAtOnce];
#pragma unroll
      for (int u = 0; u < kUnitsAtOnce; ++u) {
        const int at = i + u * threads;
        // This rank's own token last: it does not travel.
        sources[u] = (group.rank + 1 + at / units) % ranks;
        places[u] = first + at % units;
        if (at >= units * ranks || choices[sources[u]].count == 0 || places[u] >= last) {
          places[u] = -1;
        } else {
          combiner.Load(choices[sources[u]], 0, places[u], words[u]);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnitsAtOnce; ++u) {
        const int source = sources[u];
        const int unit = places[u];
        if (unit < 0) continue;
        if constexpr (!Combiner<kUnit>::kPerWorker) {
          combiner.SendAll(source, token, choices[source], unit, words[u]);
          continue;
        }
        const uint4 sum = combiner.Sum(choices[source], unit, words[u]);
        if (source == group.rank) {
          own[unit - first] = sum;
        } else {
          combiner.Send(source, token, unit, sum);
        }
      }
    }
    const std::uint32_t awaited = combiner.TermsOf(wanted);
    AllowDependentLaunch();  // not before the stores, beside which the next kernel would start
    __syncthreads();
    for (int unit = first + static_cast<int>(threadIdx.x); is_own && unit < last;
         unit += static_cast<int>(blockDim.x)) {
      combiner.Receive(awaited, token, unit, own[unit - first]);
    }
  }
  EndStep(&group.state->combine_parts);
}

}  // namespace

namespace {

cudaError_t Combine(const ExchangeRank& rank, const ExchangeStep& step,
                    const std::uint16_t* answers, void* out, bool fp32, bool dependent,
                    cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || IsNormal(rank.shape) || answers == nullptr ||
      !IsAligned16(answers) || (step.tokens > 0 && (out == nullptr || !IsAligned16(out)))) {
    return cudaErrorInvalidValue;
  }
  // Few tokens are cut into parts of 1024 columns or more, so that more SMs load and store.
  const int units = rank.shape.hidden / 8;
  const int ctas_max = std::min(kCtasMax, rank.sms);
  const int tokens = std::min(step.cover, ctas_max);
  const int parts = std::clamp(std::min(ctas_max / tokens, units / kUnitsMin), 1, kPartsMax);
  const int units_of_part = (units + parts - 1) / parts;
  const int warps = std::clamp((units_of_part * rank.shape.ranks + 31) / 32, 4, kWarpsMax);
  const auto kernel = rank.shape.unit == ExchangeUnit::kPerWorker
                          ? CombineKernel<ExchangeUnit::kPerWorker>
                          : CombineKernel<ExchangeUnit::kPerExpert>;
  return LaunchExchange(
      kernel, CombineArguments{rank, step, answers, static_cast<std::byte*>(out), fp32, parts},
      tokens * parts, warps * 32, units_of_part * 16, dependent, stream);
}

}  // namespace

cudaError_t CombineLowLatency(const ExchangeRank& rank, const ExchangeStep& step,
                              const std::uint16_t* answers, std::uint16_t* out, bool dependent,
                              cudaStream_t stream) {
  return Combine(rank, step, answers, out, false, dependent, stream);
}
cudaError_t CombineLowLatency(const ExchangeRank& rank, const ExchangeStep& step,
                              const std::uint16_t* answers, float* out, bool dependent,
                              cudaStream_t stream) {
  return Combine(rank, step, answers, out, true, dependent, stream);
}

}  // namespace switchyard::cuda
