#include "worker/routing/chunk_plan.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_routing.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

struct Case {
  DispatchMode mode;
  std::int32_t tokens;
  std::uint32_t chunk_rows;
  std::uint64_t seed;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << DispatchModeName(c.mode) << ", " << c.tokens << " tokens, chunks of " << c.chunk_rows;
  }
};

class ChunkPlanTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int32_t kExperts = 12;
  static constexpr std::int32_t kWorkers = 3;
  static constexpr std::int32_t kTopK = 4;

  // Experts dealt in turn: worker w hosts experts w, w + 3, ...
  static PlacementMap Placement() {
    LayerPlacement layer;
    for (std::int32_t e = 0; e < kExperts; ++e) {
      layer.experts.push_back({ExpertId{e}, WorkerOrdinal{e % kWorkers}, SlotId{e / kWorkers}});
    }
    return {layer, kExperts, kWorkers};
  }

  DispatchPlan MakePlan() {
    SeededRng rng(GetParam().seed);
    for (std::int32_t t = 0; t < GetParam().tokens; ++t) {
      std::set<std::int32_t> used;
      for (std::int32_t k = 0; k < kTopK; ++k) {
        auto id = static_cast<std::int32_t>(rng.Below(kExperts + 2)) - 2;
        if (id < 0 || !used.insert(id).second) id = -1;
        ids_.push_back(id);
      }
    }
    DispatchPlan plan;
    SY_EXPECT_OK(
        BuildDispatchPlan({ids_, GetParam().tokens, kTopK}, Placement(), GetParam().mode, &plan));
    return plan;
  }

  std::vector<std::int32_t> ids_;
};

TEST_P(ChunkPlanTest, CarriesEachPlannedRowOnceInWindowsThatNeverSplitAToken) {
  const DispatchPlan plan = MakePlan();
  const std::vector<std::int32_t> slots(kWorkers, kExperts / kWorkers);
  ChunkPlan chunks;

  SY_ASSERT_OK(chunks.Build(plan, slots, GetParam().chunk_rows));

  for (std::int32_t w = 0; w < kWorkers; ++w) {
    const ChunkPlan::Range range = chunks.ChunksOf(w);
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    std::uint32_t window_begin = 0;
    for (std::uint32_t c = range.first; c < range.last; ++c) {
      const Chunk& chunk = chunks.chunks()[c];
      EXPECT_EQ(chunk.worker, w);
      EXPECT_EQ(chunk.index, c - range.first);
      EXPECT_EQ(chunk.count, range.last - range.first);
      EXPECT_GT(chunk.rows, 0U);
      EXPECT_LE(chunk.rows, GetParam().chunk_rows);
      for (const PlannedRow& row : chunks.RowsOf(chunk)) {
        EXPECT_GE(row.token, window_begin);
        EXPECT_LT(row.token, chunk.token_end);
        EXPECT_TRUE(seen.insert({row.token, row.k}).second);
      }
      window_begin = chunk.token_end;
    }
    EXPECT_EQ(seen.size(), plan.workers[static_cast<std::size_t>(w)].rows.size());
  }
}

// A frame numbers chunks in 16 bits.
TEST(ChunkCountTest, RefusesMoreChunksThanAHeaderCanNumber) {
  LayerPlacement layer;
  layer.experts.push_back({ExpertId{0}, WorkerOrdinal{0}, SlotId{0}});
  const PlacementMap placement(layer, 1, 1);
  ChunkPlan chunks;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    const auto build = [&](std::int32_t tokens, std::uint32_t chunk_rows) {
      const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 0);
      DispatchPlan plan;
      SY_EXPECT_OK(BuildDispatchPlan({ids, tokens, 1}, placement, mode, &plan));
      return chunks.Build(plan, std::vector<std::int32_t>{1}, chunk_rows);
    };

    const absl::Status refused = build(131'072, 2);

    EXPECT_THAT(refused,
                testing::FailsWith(absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens));
    EXPECT_EQ(MetadataOf(refused).at("have"), "65536");
    EXPECT_EQ(MetadataOf(refused).at("limit"), "65535");
    SY_ASSERT_OK(build(131'070, 2));
    EXPECT_EQ(chunks.chunks().back().index, 65'534);
    EXPECT_EQ(chunks.chunks().back().count, 65'535);
    SY_EXPECT_OK(build(131'072, 3));
  }
}

class LowLatencyChunkPlanTest : public ChunkPlanTest {};

TEST_P(LowLatencyChunkPlanTest, GroupsRowsBySlotThenToken) {
  const DispatchPlan plan = MakePlan();
  const std::vector<std::int32_t> slots(kWorkers, kExperts / kWorkers);
  ChunkPlan chunks;

  SY_ASSERT_OK(chunks.Build(plan, slots, GetParam().chunk_rows));

  for (const Chunk& chunk : chunks.chunks()) {
    const auto rows = chunks.RowsOf(chunk);
    const auto counts = chunks.SlotCountsOf(chunk);
    ASSERT_EQ(counts.size(), 4U);
    std::size_t begin = 0;
    for (std::size_t slot = 0; slot < counts.size(); ++slot) {
      for (std::size_t r = begin; r < begin + counts[slot]; ++r) {
        EXPECT_EQ(rows[r].slot, static_cast<std::int32_t>(slot));
        if (r > begin) {
          EXPECT_LT(rows[r - 1].token, rows[r].token);
        }
      }
      begin += counts[slot];
    }
    EXPECT_EQ(begin, rows.size());
  }
}

constexpr DispatchMode kNm = DispatchMode::kNormal;
constexpr DispatchMode kLl = DispatchMode::kLowLatency;
INSTANTIATE_TEST_SUITE_P(Normal, ChunkPlanTest,
                         ::testing::Values(Case{kNm, 1, 4, 1}, Case{kNm, 100, 7, 2},
                                           Case{kNm, 0, 7, 3}));
INSTANTIATE_TEST_SUITE_P(LowLatency, ChunkPlanTest,
                         ::testing::Values(Case{kLl, 1, 4, 4}, Case{kLl, 100, 4, 5},
                                           Case{kLl, 100, 33, 6}, Case{kLl, 0, 33, 7}));
INSTANTIATE_TEST_SUITE_P(Shapes, LowLatencyChunkPlanTest,
                         ::testing::Values(Case{kLl, 1, 4, 4}, Case{kLl, 100, 4, 5},
                                           Case{kLl, 100, 33, 6}));

}  // namespace
}  // namespace switchyard
