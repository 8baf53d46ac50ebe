// The moves of rows, without flags and waits: host_exchange_test has those, and all numbers.
#include "worker/device/host/exchange_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/receive_layout.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::RandomRouting;
using testing::Routing;

constexpr std::int32_t kRanks = 3;
constexpr std::int32_t kExpertRanks = 2;
constexpr std::int32_t kTokensMax = 9;
constexpr ExchangeSpec kSpec{
    .shape = {.hidden = 24, .intermediate = 8, .experts = 10, .top_k = 3},
    .ranks = kRanks,
    .expert_ranks = kExpertRanks,
    .tokens_max = kTokensMax,
};
constexpr std::byte kPoison{0xa5};

// As ExchangeSpec places experts: as many on each rank, in order.
LayerPlacement PlacementOf() {
  LayerPlacement placement;
  for (std::int32_t e = 0; e < kSpec.shape.experts; ++e) {
    placement.experts.push_back({ExpertId{e}, WorkerOrdinal{e / kSpec.experts_of_rank()},
                                 SlotId{e % kSpec.experts_of_rank()}});
  }
  return placement;
}

// The heaps of a group in memory of this test, poisoned.
class Heaps {
 public:
  Heaps() {
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      memory_.push_back(*AlignedBuffer::Allocate(static_cast<std::int64_t>(layout_.bytes(rank))));
      std::memset(memory_.back().data(), std::to_integer<int>(kPoison), layout_.bytes(rank));
      heaps_.emplace_back(&layout_, memory_.back().data());
    }
  }
  [[nodiscard]] std::span<const ExchangeHeap> all() const { return heaps_; }
  [[nodiscard]] const ExchangeHeap& of(std::size_t rank) const { return heaps_[rank]; }

 private:
  const HeapLayout layout_{kSpec};
  std::vector<AlignedBuffer> memory_;
  std::vector<ExchangeHeap> heaps_;
};

// Pairs that each expert of a rank has got, as its heap says.
std::vector<std::int32_t> PairsOfSlots(const ExchangeHeap& heap, std::uint64_t step,
                                       std::int32_t rank, const std::vector<Routing>& routings) {
  std::vector<std::int32_t> pairs(static_cast<std::size_t>(kSpec.experts_of_rank()));
  for (std::size_t source = 0; source < routings.size(); ++source) {
    for (std::int32_t token = 0; token < routings[source].shape.tokens; ++token) {
      const ExchangeChoice* const choices =
          heap.choices(step, static_cast<std::int32_t>(source), token);
      for (std::int32_t k = 0; k < kSpec.shape.top_k; ++k) {
        const std::int32_t slot = choices[k].expert - rank * kSpec.experts_of_rank();
        if (slot >= 0 && slot < kSpec.experts_of_rank()) ++pairs[static_cast<std::size_t>(slot)];
      }
    }
  }
  return pairs;
}

// R49, R50, R51: what ranks get is what the receive layouts of the dispatch plans say.
TEST(ExchangeRowsTest, RanksGetTheRowsOfTheReceiveLayout) {
  const PlacementMap placement(PlacementOf(), kSpec.shape.experts, kExpertRanks);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    const Heaps heaps;
    std::vector<Routing> routings;
    std::vector<std::vector<Bf16>> x;
    std::vector<DispatchPlan> normal(kRanks);
    std::vector<DispatchPlan> low_latency(kRanks);
    for (std::size_t source = 0; source < kRanks; ++source) {
      const auto tokens =
          source == seed % kRanks ? 0 : static_cast<std::int32_t>(rng.Below(kTokensMax + 1));
      routings.push_back(
          RandomRouting(rng, {tokens, kSpec.shape.top_k, kSpec.shape.experts}, 0.5, 0.2));
      x.push_back(testing::GaussianBf16(static_cast<std::size_t>(tokens) * 24, 1.0, rng));
      const RoutedBatch batch = routings.back().batch();
      SY_ASSERT_OK(BuildDispatchPlan(batch, placement, DispatchMode::kNormal, &normal[source]));
      SY_ASSERT_OK(
          BuildDispatchPlan(batch, placement, DispatchMode::kLowLatency, &low_latency[source]));
      const auto rank = static_cast<std::int32_t>(source);
      SY_ASSERT_OK_AND_ASSIGN(const auto rows, ExchangeRows::Create({.spec = kSpec, .rank = rank}));

      const std::uint64_t answering = rows->Send(heaps.all(), seed,
                                                 {.cover = kTokensMax,
                                                  .tokens = tokens,
                                                  .x = x.back().data(),
                                                  .ids = routings.back().ids.data(),
                                                  .weights = routings.back().weights.data()});

      const SendLayout sent = SendLayoutOf(normal[source], placement);
      for (std::int32_t to = 0; to < kExpertRanks; ++to) {
        const auto at = static_cast<std::size_t>(to);
        EXPECT_EQ((answering >> to & 1U) != 0, sent.num_tokens_per_rank[at] > 0);
        for (std::int32_t token = 0; token < tokens; ++token) {
          const auto number = static_cast<std::size_t>(token);
          const std::byte* const row = heaps.of(at).row(seed, rank, token);
          if (sent.is_token_in_rank[number * kExpertRanks + at] != 0) {
            EXPECT_EQ(std::memcmp(row, x.back().data() + number * 24, 48), 0);
          } else {
            EXPECT_TRUE(std::all_of(row, row + 48, [](std::byte b) { return b == kPoison; }));
          }
        }
      }
    }
    for (std::int32_t rank = 0; rank < kExpertRanks; ++rank) {
      const auto pairs =
          PairsOfSlots(heaps.of(static_cast<std::size_t>(rank)), seed, rank, routings);
      EXPECT_EQ(pairs, NumRecvTokensPerExpert(normal, WorkerOrdinal{rank}, kSpec.experts_of_rank(),
                                              /*alignment=*/1));
      EXPECT_EQ(pairs, LowLatencyReceiveOf(low_latency, WorkerOrdinal{rank},
                                           kSpec.experts_of_rank(), kTokensMax)
                           .masked_m);
    }
  }
}

// Two steps are in a heap at once.
TEST(ExchangeRowsTest, StepsInTurnDoNotOverlap) {
  const Heaps heaps;
  const ExchangeHeap& heap = heaps.of(0);
  for (const std::uint64_t step : {1U, 2U}) {
    for (std::int32_t source = 0; source < kRanks; ++source) {
      for (std::int32_t token = 0; token < kTokensMax; ++token) {
        const int mark = static_cast<int>(step) * 100 + source * 10 + token;
        std::memset(heap.row(step, source, token), mark, 48);
        heap.choices(step, source, token)[2].expert = mark;
        if (source < kExpertRanks) heap.sum(step, source, token)[23] = static_cast<Bf16>(mark);
      }
    }
  }
  for (const std::uint64_t step : {1U, 2U}) {
    for (std::int32_t source = 0; source < kRanks; ++source) {
      for (std::int32_t token = 0; token < kTokensMax; ++token) {
        const int mark = static_cast<int>(step) * 100 + source * 10 + token;
        const std::byte* const row = heap.row(step, source, token);
        const auto expected = static_cast<std::byte>(mark);
        EXPECT_TRUE(std::all_of(row, row + 48, [=](std::byte b) { return b == expected; }));
        EXPECT_EQ(heap.choices(step, source, token)[2].expert, mark);
        if (source < kExpertRanks) {
          EXPECT_EQ(heap.sum(step, source, token)[23], mark);
        }
      }
    }
  }
  EXPECT_EQ(heap.row(1, 0, 0), heap.row(3, 0, 0));
}

}  // namespace
}  // namespace switchyard
