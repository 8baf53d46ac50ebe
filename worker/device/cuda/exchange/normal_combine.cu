// Most CTAs send, chunk of tokens by chunk: their warps sum this rank's experts for 1024 columns of
// a token of a source and send the sum, and the last CTA to have sent its share of a chunk tells
// the sources so. The others add up, also by chunks, what all ranks have sent for this rank's own
// tokens. Both at a time, because sending waits for the link and adding up for memory. With
// messages all CTAs of one kernel send, and all of another add up.
#include <algorithm>
#include <type_traits>

#include "worker/device/cuda/exchange/answer_math.cuh"
#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/fp8_answers.cuh"
#include "worker/device/cuda/exchange/message_marks.cuh"
#include "worker/device/cuda/exchange/messages.h"
#include "worker/device/cuda/exchange/normal.h"
#include "worker/device/cuda/exchange/normal_words.cuh"
#include "worker/device/cuda/exchange/step_table.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kCtasOfSm = 2;
constexpr int kChunksUsual = 8;
static_assert(kChunksUsual <= kAnswerChunksMax);
constexpr int kUnitsOfLane = kAnswerUnits;
constexpr int kUnitsOfPart = 32 * kUnitsOfLane;  // a unit is eight columns, 16 bytes of BF16

// Registers decide: a thread that has too few of them keeps sums in memory.
struct Cut {
  int threads = 0;
  int rows_at_once = 0;   // that a warp waits for
  int ctas_of_adder = 0;  // one of so many adds up; decoding is work
};
constexpr Cut CutOf(AnswerFormat answers) {
  if (answers == AnswerFormat::kFp8) {
    return {.threads = 256, .rows_at_once = 2, .ctas_of_adder = 4};
  }
  return {.threads = 320, .rows_at_once = 2, .ctas_of_adder = 5};
}

struct CombineArguments {
  ExchangeRank group;
  ExchangeStep step;
  const std::uint16_t* answers;
  std::byte* out;
  bool fp32;   // out
  int adders;  // the first CTAs
  int chunk;   // tokens
};

struct Sums {
  float of[kUnitsOfLane][8] = {};
};

// The units of a lane in a part of a row.
struct UnitsOfPart {
  __device__ __forceinline__ UnitsOfPart(int part, int hidden)
      : first(part * kUnitsOfPart + static_cast<int>(threadIdx.x % 32)), all(hidden / 8) {}
  [[nodiscard]] __device__ __forceinline__ int At(int i) const { return first + i * 32; }
  [[nodiscard]] __device__ __forceinline__ bool Has(int i) const { return At(i) < all; }
  const int first;
  const int all;
};

// A part of a row on its way: Load, and when others are asked for, too, Add.
struct Bf16Part {
  __device__ __forceinline__ void Load(const std::byte* row, const UnitsOfPart& units) {
#pragma unroll
    for (int i = 0; i < kUnitsOfLane; ++i) {
      if (units.Has(i)) words[i] = *reinterpret_cast<const uint4*>(row + units.At(i) * 16);
    }
  }
  __device__ __forceinline__ void Add(const UnitsOfPart& units, float weight, Sums* sums) const {
#pragma unroll
    for (int i = 0; i < kUnitsOfLane; ++i) {
      if (units.Has(i)) AddUnit(words[i], weight, sums->of[i]);
    }
  }
  uint4 words[kUnitsOfLane];
};

// One lane's choice of a token, as far as this rank has its expert.
struct LandedChoice {
  int slot = -1;
  float weight = 0.0F;
};

// The lowest of `bits`, a bit for each of several terms, leaves them.
__device__ __forceinline__ int TakeFirst(std::uint32_t* bits) {
  const int first = __ffs(static_cast<int>(*bits)) - 1;
  *bits &= *bits - 1;
  return first;
}

// The same of a row that has come in FP8; its weight is 1.
struct Fp8Part {
  __device__ __forceinline__ void Load(const std::byte* row, const UnitsOfPart& units) {
    fp8.Load(row, units.first, units.all);
  }
  __device__ __forceinline__ void Add(const UnitsOfPart& units, float /*weight*/,
                                      Sums* sums) const {
    fp8.Add(units.first, units.all, sums->of);
  }
  Fp8Units fp8;
};

template <AnswerFormat kAnswers, ExchangePart kPart>
class Combiner {
 public:
  using Landed = std::conditional_t<kAnswers == AnswerFormat::kFp8, Fp8Part, Bf16Part>;
  static constexpr int kRowsAtOnce = CutOf(kAnswers).rows_at_once;

  __device__ __forceinline__ Combiner(const CombineArguments& args, std::uint32_t number)
      : args_(args),
        group_(args.group),
        words_(group_, number),
        parts_((group_.shape.hidden / 8 + kUnitsOfPart - 1) / kUnitsOfPart),
        adds_(kPart == ExchangePart::kLand ||
              (kPart == ExchangePart::kWhole && static_cast<int>(blockIdx.x) < args.adders)),
        ctas_(adds_ ? args.adders : static_cast<int>(gridDim.x) - args.adders),
        // Warps of different SMs have the parts of a row.
        first_(static_cast<int>(threadIdx.x / 32) * ctas_ + static_cast<int>(blockIdx.x) -
               (adds_ ? 0 : args.adders)),
        warps_(ctas_ * static_cast<int>(blockDim.x) / 32) {}

  __device__ __forceinline__ void Run() const {
    const int chunks = (args_.step.cover + args_.chunk - 1) / args_.chunk;
    int item = first_;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (adds_) {
        AddUpChunk(chunk);
      } else {
        SendChunk(chunk, &item);
      }
    }
  }

 private:
  // The sources in turn: each rank begins with the one after it, and ends with itself. Warps take
  // turns across sources and chunks, so that none has more to do than another: `item` is the next
  // one of this warp, counted from the chunk's first.
  __device__ __forceinline__ void SendChunk(int chunk, int* item) const {
    const int begin = chunk * args_.chunk;
    for (int turn = 1; turn <= group_.shape.ranks; ++turn) {
      const int source = (group_.rank + turn) % group_.shape.ranks;
      const auto tokens = static_cast<int>(__ldcg(&group_.state->normal.tokens[source]));
      const int items = max(min(tokens - begin, args_.chunk), 0) * parts_;
      LandedChoice next;
      if (*item < items) next = ChoiceOf(source, begin + *item / parts_);
      while (*item < items) {
        const LandedChoice choice = next;
        const int token = begin + *item / parts_;
        const int part = *item % parts_;
        *item += warps_;
        if (*item < items) next = ChoiceOf(source, begin + *item / parts_);
        SendSum(source, token, part, choice);
      }
      *item -= items;
    }
    if constexpr (kPart == ExchangePart::kSend) return;  // messages are sealed as a whole
    if (words_.IsLast(&group_.state->normal.chunks_sent[chunk],
                      static_cast<std::uint32_t>(ctas_))) {
      words_.Tell(kAnswersWord + chunk, 0, 0);
    }
  }

  [[nodiscard]] __device__ __forceinline__ LandedChoice ChoiceOf(int source, int token) const {
    const int top_k = group_.shape.top_k;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if (lane >= top_k) return {};
    const int at = (source * group_.shape.tokens_max + token) * top_k + lane;
    return {args_.step.rows.slots[at], args_.step.rows.weights[at]};
  }

  // This rank's experts, choices in ascending order.
  __device__ __forceinline__ void SendSum(int source, int token, int part,
                                          const LandedChoice& own) const {
    std::uint32_t here = __ballot_sync(kAllLanes, own.slot >= 0);
    if (here == 0) return;
    const UnitsOfPart units(part, group_.shape.hidden);
    Sums sums;
    while (here != 0) {
      Bf16Part rows[kRowsAtOnce];
      int choices[kRowsAtOnce];
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        choices[r] = here == 0 ? -1 : TakeFirst(&here);
        if (choices[r] < 0) continue;
        const std::int64_t answer = __shfl_sync(kAllLanes, own.slot, choices[r]);
        rows[r].Load(
            reinterpret_cast<const std::byte*>(args_.answers + answer * group_.shape.hidden),
            units);
      }
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (choices[r] < 0) continue;
        rows[r].Add(units, __shfl_sync(kAllLanes, own.weight, choices[r]), &sums);
      }
    }
    // In the outbox, sums for a source are where those of its own would be.
    const int place = kPart == ExchangePart::kSend ? source : group_.rank;
    std::byte* to = group_.heaps[source] + group_.layout.Answer(group_.shape, 0, place, token);
    if constexpr (kAnswers == AnswerFormat::kFp8) {
      SendFp8Sums(sums.of, part, group_.shape.hidden, to);
    } else {
#pragma unroll
      for (int i = 0; i < kUnitsOfLane; ++i) {
        if (units.Has(i)) StoreSystem(to + units.At(i) * 16, RoundedUnit(sums.of[i]));
      }
    }
  }

  __device__ __forceinline__ void AddUpChunk(int chunk) const {
    const auto rank = static_cast<int>(threadIdx.x);
    uint4 said;
    // Its own word stands for what other CTAs of this rank have written.
    if (rank < group_.shape.ranks) {
      (void)(kPart == ExchangePart::kLand ? words_.AwaitSeal(rank, kAnswersWord + chunk, &said)
                                          : words_.Await(rank, kAnswersWord + chunk, &said));
    }
    __syncthreads();
    const int begin = chunk * args_.chunk;
    const int items = min(args_.step.tokens - begin, args_.chunk) * parts_;
    Wanted next;
    if (first_ < items) next = AskFor(group_, args_.step, begin + first_ / parts_);
    for (int i = first_; i < items; i += warps_) {
      const Wanted wanted = next;
      const int following = i + warps_;
      if (following < items) next = AskFor(group_, args_.step, begin + following / parts_);
      AddUp(begin + i / parts_, i % parts_, wanted);
    }
  }

  // The sums of the ranks that have experts of the token, in ascending order.
  __device__ __forceinline__ void AddUp(int token, int part, const Wanted& wanted) const {
    const int place = PlaceOf(group_.shape, args_.step, wanted.id);
    const std::uint32_t of_lane = place >= 0 ? 1U << (place / group_.shape.experts_of_rank) : 0;
    std::uint32_t ranks = __reduce_or_sync(kAllLanes, of_lane) & ~wanted.lost;
    const UnitsOfPart units(part, group_.shape.hidden);
    Sums sums;
    while (ranks != 0) {
      Landed rows[kRowsAtOnce];
      bool there[kRowsAtOnce];
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        there[r] = ranks != 0;
        if (!there[r]) continue;
        const std::int64_t at = group_.layout.Answer(group_.shape, 0, TakeFirst(&ranks), token);
        rows[r].Load(group_.heaps[group_.rank] + at, units);
      }
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (there[r]) rows[r].Add(units, 1.0F, &sums);
      }
    }
    const std::int64_t row = static_cast<std::int64_t>(token) * group_.shape.hidden;
#pragma unroll
    for (int i = 0; i < kUnitsOfLane; ++i) {
      if (units.Has(i)) Write(row + units.At(i) * 8, sums.of[i]);
    }
  }

  __device__ __forceinline__ void Write(std::int64_t at, const float (&sums)[8]) const {
    if (!args_.fp32) {
      *reinterpret_cast<uint4*>(args_.out + at * 2) = RoundedUnit(sums);
      return;
    }
    auto* out = reinterpret_cast<float4*>(args_.out + at * 4);
    out[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    out[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }

  const CombineArguments& args_;
  const ExchangeRank& group_;
  const Words words_;
  const int parts_;
  const bool adds_;
  const int ctas_;  // that do the same
  const int first_;
  const int warps_;
};

template <AnswerFormat kAnswers, ExchangePart kPart>
__global__ void __launch_bounds__(CutOf(kAnswers).threads, kCtasOfSm)
    CombineKernel(const __grid_constant__ CombineArguments args) {
  StepNumber asked(&args.group.state->combine_parts);
  const std::uint32_t number = asked.Get();
  if constexpr (kPart == ExchangePart::kSend) MarkBegun(args.group, number, Message::kAnswers);
  if constexpr (kPart == ExchangePart::kLand) {
    MarkArrived(args.group, number, Message::kAnswers, Words(args.group, number));
  }
  Combiner<kAnswers, kPart>(args, number).Run();
  if constexpr (kPart != ExchangePart::kSend) EndStep(&args.group.state->combine_parts);
}

template <ExchangePart kPart>
cudaError_t Combine(const ExchangeRank& rank, const ExchangeStep& step,
                    const std::uint16_t* answers, void* out, bool fp32, cudaStream_t stream) {
  if (!IsExchangeStep(rank, step) || !IsNormal(rank.shape) ||
      rank.shape.by_messages != (kPart != ExchangePart::kWhole)) {
    return cudaErrorInvalidValue;
  }
  const bool sends = kPart != ExchangePart::kLand;
  const bool adds = kPart != ExchangePart::kSend && step.tokens > 0;
  if ((sends && (answers == nullptr || !IsAligned16(answers))) ||
      (adds && (out == nullptr || !IsAligned16(out)))) {
    return cudaErrorInvalidValue;
  }
  const int parts = (rank.shape.hidden / 8 + kUnitsOfPart - 1) / kUnitsOfPart;
  const int chunk = std::max(kChunkTokensMin, (step.cover + kChunksUsual - 1) / kChunksUsual);
  const int warps = std::min(step.cover, chunk) * parts * rank.shape.ranks;
  const Cut cut = CutOf(step.answers);
  const int ctas = std::clamp(warps * 32 / cut.threads, 2, kCtasOfSm * rank.sms);
  int adders = (ctas + cut.ctas_of_adder - 1) / cut.ctas_of_adder;
  if (kPart == ExchangePart::kSend) adders = 0;
  if (kPart == ExchangePart::kLand) adders = ctas;
  const auto kernel = step.answers == AnswerFormat::kFp8
                          ? CombineKernel<AnswerFormat::kFp8, kPart>
                          : CombineKernel<AnswerFormat::kBf16, kPart>;
  return LaunchExchange(
      kernel,
      CombineArguments{rank, step, answers, static_cast<std::byte*>(out), fp32, adders, chunk},
      ctas, cut.threads, 0, false, stream);
}

}  // namespace

cudaError_t CombineNormal(const ExchangeRank& rank, const ExchangeStep& step,
                          const std::uint16_t* answers, std::uint16_t* out, cudaStream_t stream) {
  return Combine<ExchangePart::kWhole>(rank, step, answers, out, false, stream);
}
cudaError_t CombineNormal(const ExchangeRank& rank, const ExchangeStep& step,
                          const std::uint16_t* answers, float* out, cudaStream_t stream) {
  return Combine<ExchangePart::kWhole>(rank, step, answers, out, true, stream);
}

cudaError_t WriteAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                                const std::uint16_t* answers, cudaStream_t stream) {
  return Combine<ExchangePart::kSend>(rank, step, answers, nullptr, false, stream);
}
cudaError_t AddAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step,
                              std::uint16_t* out, cudaStream_t stream) {
  return Combine<ExchangePart::kLand>(rank, step, nullptr, out, false, stream);
}
cudaError_t AddAnswerMessages(const ExchangeRank& rank, const ExchangeStep& step, float* out,
                              cudaStream_t stream) {
  return Combine<ExchangePart::kLand>(rank, step, nullptr, out, true, stream);
}

}  // namespace switchyard::cuda
