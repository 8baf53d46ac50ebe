// The memory that the ranks of a group exchange rows through, and what its sizes follow from.
//
// Every rank has one heap, of the same layout, which all others map (DeviceBackend::AllocateShared
// between processes). A rank writes into the heaps of others and reads its own. Groups of few
// tokens have three buffers of everything, used in turn by steps; those of many (IsNormal) one:
//
//   headers  [buffer][source]          16 bytes: tokens, shape, tag; of many tokens the words of
//                                      normal_words.cuh
//   table    [buffer][source][token]   packets of 16 bytes: two expert ids, their weights, tag
//   answers  [buffer][expert rank][token]  the sum of that rank's experts, BF16, or FP8 and scales
//                                          behind it; or
//            [buffer][token][choice]       the row of one expert, BF16
//   rows     [buffer][source][token]   the row in its wire format, scales behind the data; only of
//                                      ranks with experts
//
// A token's place is its number at its source, so that nobody counts before rows fly. Few rows and
// answers say by themselves that they are there: their memory holds a word until they land with
// which no 16 bytes of them begin (exchange_memory.cuh). Many have words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/exchange/exchange_format.h"

namespace switchyard::cuda {

// It changes with what ranks write into each other's heaps, and when. Processes of two releases
// that differ in it say that their steps do not match, where they would wait for words that never
// come.
constexpr int kExchangeVersion = 5;
constexpr int kExchangeRanksMax = 8;
constexpr int kExchangeBuffers = 3;
constexpr int kExchangeTokensMax = 256;  // by the kernels of few tokens
constexpr int kNormalTokensMax = 8192;
constexpr int kExchangeTopKMax = 16;
constexpr int kExchangeExpertsMax = 512;  // of a rank
constexpr int kExchangeHiddenMax = 8192;
// Bounds ranks * tokens * top-k of few tokens: one CTA lists them all in its shared memory.
constexpr int kExchangePairsMax = 24576;
constexpr int kNormalPairsMax = 524288;
constexpr int kListCtas = 8;          // make the lists of many tokens
constexpr int kChunkTokensMin = 256;  // whose answers a source waits for at once, of many
constexpr int kAnswerChunksMax = kNormalTokensMax / kChunkTokensMin;
constexpr int kHeaderBytes = 1024;
constexpr std::uint32_t kExchangePoison = 0xffffff80U;  // exchange_memory.cuh says why

// Says what comes back for a token: a row from each rank that has experts of it, which is less to
// send, or one from each expert, whose sum is bit-equal wherever experts are placed.
enum class ExchangeUnit : std::uint8_t { kPerWorker, kPerExpert };

// Alike on all ranks.
struct ExchangeShape {
  int ranks = 1;
  int tokens_max = 0;  // of a rank in a step
  int hidden = 0;      // a multiple of 128
  int top_k = 0;
  int experts_of_rank = 0;  // rank r has the experts from r * experts_of_rank on
  int expert_ranks = 0;     // only ranks below it have experts; 0: all
  ExchangeFormatSet formats = ExchangeFormat::kFp8;  // that steps may have
  ExchangeUnit unit = ExchangeUnit::kPerWorker;
  // Ranks write for others into memory of their own, and somebody carries it over (messages.h).
  bool by_messages = false;
};

// The experts of all ranks together.
__host__ __device__ constexpr int ExpertsOf(const ExchangeShape& shape) {
  return (shape.expert_ranks == 0 ? shape.ranks : shape.expert_ranks) * shape.experts_of_rank;
}

__host__ __device__ constexpr bool HasExperts(const ExchangeShape& shape, int rank) {
  return shape.expert_ranks == 0 || rank < shape.expert_ranks;
}

// Whether a step may have more tokens than the kernels of low_latency.h take; then those of
// normal.h serve all its steps. They serve messages too: their rows do not say by themselves that
// they have landed.
__host__ __device__ constexpr bool IsNormal(const ExchangeShape& shape) {
  return shape.by_messages || shape.tokens_max > kExchangeTokensMax ||
         shape.ranks * shape.tokens_max * shape.top_k > kExchangePairsMax;
}
__host__ __device__ constexpr int BuffersOf(const ExchangeShape& shape) {
  return IsNormal(shape) ? 1 : kExchangeBuffers;
}

constexpr bool IsExchangeShape(const ExchangeShape& shape) {
  return shape.ranks >= 1 && shape.ranks <= kExchangeRanksMax && shape.tokens_max >= 1 &&
         shape.tokens_max <= kNormalTokensMax && shape.hidden >= 128 &&
         shape.hidden <= kExchangeHiddenMax && shape.hidden % 128 == 0 && shape.top_k >= 1 &&
         shape.top_k <= kExchangeTopKMax && shape.experts_of_rank >= 1 && shape.expert_ranks >= 0 &&
         shape.expert_ranks <= shape.ranks && shape.experts_of_rank <= kExchangeExpertsMax &&
         shape.ranks * shape.tokens_max * shape.top_k <= kNormalPairsMax &&
         shape.formats.bits != 0 && shape.formats.bits >> kExchangeFormats == 0 &&
         (!IsNormal(shape) || shape.unit == ExchangeUnit::kPerWorker);
}

// One of the top-k of a token.
struct Choice {
  int number = 0;
};

// Where everything lies in a heap, in bytes from its start.
struct ExchangeLayout {
  std::int64_t headers = 0;
  std::int64_t table = 0;
  std::int64_t answers = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // of a rank with experts
  int packets = 0;         // of a token in the table
  int row_stride = 0;      // from row to row
  int answer_stride = 0;   // from answer to answer

  [[nodiscard]] __host__ __device__ constexpr std::int64_t Header(const ExchangeShape& shape,
                                                                  int buffer, int source) const {
    return headers + static_cast<std::int64_t>(buffer * shape.ranks + source) * kHeaderBytes;
  }
  [[nodiscard]] __host__ __device__ constexpr std::int64_t Packet(const ExchangeShape& shape,
                                                                  int buffer, int source, int token,
                                                                  int packet) const {
    return table + (Place(shape, buffer, source, token) * packets + packet) * 16;
  }
  [[nodiscard]] __host__ __device__ constexpr std::int64_t Row(const ExchangeShape& shape,
                                                               int buffer, int source,
                                                               int token) const {
    return rows + Place(shape, buffer, source, token) * row_stride;
  }
  [[nodiscard]] __host__ __device__ constexpr std::int64_t Answer(const ExchangeShape& shape,
                                                                  int buffer, int rank,
                                                                  int token) const {
    return answers + Place(shape, buffer, rank, token) * answer_stride;
  }
  // The same with ExchangeUnit::kPerExpert.
  [[nodiscard]] __host__ __device__ constexpr std::int64_t Answer(const ExchangeShape& shape,
                                                                  int buffer, int token,
                                                                  Choice choice) const {
    const std::int64_t place =
        static_cast<std::int64_t>(buffer * shape.tokens_max + token) * shape.top_k + choice.number;
    return answers + place * answer_stride;
  }
  // The number of a row among all: what row lists hold.
  [[nodiscard]] static __host__ __device__ constexpr std::int64_t Place(const ExchangeShape& shape,
                                                                        int buffer, int source,
                                                                        int token) {
    return static_cast<std::int64_t>(buffer * shape.ranks + source) * shape.tokens_max + token;
  }
};

// REQUIRES: IsExchangeShape(shape).
constexpr ExchangeLayout LayoutOf(const ExchangeShape& shape) {
  constexpr auto aligned = [](std::int64_t bytes) { return (bytes + 127) / 128 * 128; };
  const std::int64_t buffers = BuffersOf(shape);
  const std::int64_t places = buffers * shape.ranks * shape.tokens_max;
  int row_bytes = 0;
  for (int f = 0; f < kExchangeFormats; ++f) {
    const auto format = static_cast<ExchangeFormat>(f);
    const int bytes = shape.formats.Has(format) ? RowBytesOf(format, shape.hidden) : 0;
    row_bytes = bytes > row_bytes ? bytes : row_bytes;
  }
  ExchangeLayout layout;
  layout.packets = (shape.top_k + 1) / 2;
  layout.row_stride = static_cast<int>(aligned(row_bytes));
  layout.answer_stride = static_cast<int>(aligned(shape.hidden * 2));
  layout.table = buffers * shape.ranks * kHeaderBytes;
  layout.answers = aligned(layout.table + places * layout.packets * 16);
  const std::int64_t answers =
      shape.unit == ExchangeUnit::kPerWorker ? places : buffers * shape.tokens_max * shape.top_k;
  layout.rows = layout.answers + answers * layout.answer_stride;
  layout.bytes = layout.rows + places * layout.row_stride;
  return layout;
}

// The size of a rank's heap.
constexpr std::int64_t HeapBytes(const ExchangeShape& shape, const ExchangeLayout& layout,
                                 int rank) {
  return HasExperts(shape, rank) ? layout.bytes : layout.rows;
}

}  // namespace switchyard::cuda
