// The exchange's kernels are told this of a group, a rank and a step, keep this on the device, and
// tell the host this.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/exchange_shape.h"

namespace switchyard::cuda {

// Why a step is no result. The first reason stays.
enum class ExchangeFault : std::uint32_t { kNone = 0, kTimeout = 1, kMismatch = 2 };

constexpr std::uint32_t kExchangeParts = 65536;
// Kernels count the steps of a group in 32 bits; what is left of a step that had a number before
// would count as this one's. The first that is one too many is refused by whoever enqueues steps.
constexpr std::uint64_t kExchangeStepsMax = std::uint64_t{1} << 31;

// CTAs of a kernel of normal mode tell each other this. Each counter is zero between kernels.
struct NormalState {
  std::uint32_t tables_sent = 0;  // by CTAs of the lists
  std::uint32_t lists_counted = 0;
  std::uint32_t lists_released = 0;  // the step whose lists are counted, from 1
  std::uint32_t rows_sent = 0;
  std::uint32_t chunks_sent[kAnswerChunksMax] = {};
  std::uint32_t tokens[kExchangeRanksMax] = {};  // of each source in the last step
  std::int32_t counts[kListCtas][kExchangeExpertsMax] = {};
};

// In memory of the rank's device.
struct ExchangeState {
  // Kernels that have ended, in parts: each adds kExchangeParts in all, every CTA a share. So all
  // CTAs of one see the same number, however late they start, and none waits for another.
  std::uint64_t dispatch_parts = 0;
  std::uint64_t combine_parts = 0;
  std::uint32_t lost = 0;  // a bit for each rank
  // The lower half: tokens that a source may have had in the last step of the buffer. The upper
  // one: 16-byte units of a row of that step.
  std::uint32_t covered[kExchangeBuffers] = {};
  std::uint32_t fault = 0;  // the first
  std::uint32_t fault_rank = 0;
  std::uint32_t fault_step = 0;
  // Holds ExchangeReport::gone as far as a kernel has seen it. It must not be before `covered`,
  // which is read with the first words, as 32 bytes.
  std::uint32_t gone = 0;
  NormalState normal;
};

constexpr std::uint32_t kExchangeReports = 1024;

// A choice of this rank's own tokens that is no expert, or an expert twice: the step's number in
// the upper half, and below it the place in the ids, from 1, and whether it is the latter.
constexpr std::uint32_t kChosenTwice = 0x80000000U;

// Between kernels and host, in memory of the host that both reach. Kernels write the first fault,
// `fault` last of it, and choices; the host writes `gone`.
struct ExchangeReport {
  std::uint64_t choices[kExchangeReports] = {};  // by step; 0: none was found
  std::uint32_t fault = 0;
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::uint32_t gone = 0;  // a bit for each rank that is known not to come
  // The fault's wait was for it: a word of normal mode (normal_words.cuh), from 1; 0: not known.
  std::uint32_t awaited = 0;
  // With messages (messages.h): those that this rank's kernels have begun to write, and those that
  // they have gone on behind; and of `gone` the ranks that are the reason, if known.
  std::uint32_t begun = 0;
  std::uint32_t arrived = 0;
  std::uint32_t suspects = 0;
};

constexpr std::uint64_t kExchangeTimeoutMax = std::uint64_t{1} << 41;  // ns, 36 minutes

// Tells a rank's kernels about the group.
struct ExchangeRank {
  ExchangeShape shape;
  ExchangeLayout layout;
  // As this rank maps them; [rank] its own. With messages, of all others this rank's outbox.
  std::byte* heaps[kExchangeRanksMax] = {};
  ExchangeState* state = nullptr;
  ExchangeReport* report = nullptr;  // null: nobody reads it
  int rank = 0;
  std::uint64_t timeout_ns = 0;  // at most kExchangeTimeoutMax
  // SMs that the kernels take at most; those of all ranks that share a GPU have to run at once.
  int sms = 132;
};

constexpr int kIndexBehind = 128;

// The lists of a step, in memory of the rank's device; for as many slots as the rank can get,
// ExchangeSlotsMax. A dispatch writes them all.
struct ExchangeRows {
  std::int32_t* counts = nullptr;   // [experts_of_rank]
  std::int32_t* offsets = nullptr;  // [experts_of_rank + 1]
  // [slots + kIndexBehind]: the number of the row (ExchangeLayout::Place), from the heap's `rows`
  // on. What is behind the step's slots means nothing, and products may read it.
  std::int32_t* row_index = nullptr;
  // [ranks * tokens_max * top_k], of a source's token and choice: its slot, or -1; its weight.
  std::int32_t* slots = nullptr;
  float* weights = nullptr;
};
__host__ __device__ constexpr int ExchangeSlotsMax(const ExchangeShape& shape) {
  const int of_token = shape.top_k < shape.experts_of_rank ? shape.top_k : shape.experts_of_rank;
  return shape.ranks * shape.tokens_max * of_token;
}

// The step of one rank.
struct ExchangeStep {
  // Tokens that a rank may have in this step, the same on all ranks and at least `tokens`: the work
  // is cut by it. tokens_max does always.
  int cover = 0;
  int tokens = 0;
  int layer = 0;                                 // the same on all ranks
  ExchangeFormat format = ExchangeFormat::kFp8;  // of ExchangeShape::formats, the same on all ranks
  float global_scale = 1.0F;                     // of NVFP4, the same on all ranks
  AnswerFormat answers = AnswerFormat::kBf16;    // the same on all ranks
  const std::uint16_t* x = nullptr;              // BF16 [tokens][hidden], 16-byte aligned
  const std::int32_t* ids = nullptr;  // [tokens][top_k]; outside of all experts: no expert
  const float* weights = nullptr;     // [tokens][top_k]
  // [experts]: the rank of each times experts_of_rank plus its slot there. Null: expert e is at e.
  const std::int32_t* places = nullptr;
  ExchangeRows rows;
};

}  // namespace switchyard::cuda
