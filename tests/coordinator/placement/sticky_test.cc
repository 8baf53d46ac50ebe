#include "coordinator/placement/sticky.h"

#include <algorithm>
#include <ostream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

// A pool of workers and the placement that they have.
class Pool {
 public:
  Pool(std::int32_t layers, std::int32_t experts) {
    for (std::int32_t l = 0; l < layers; ++l) request_.layers.push_back(LayerId{l});
    request_.experts = experts;
    request_.expert_bytes = 10;
  }

  void Add(const std::string& id, std::int64_t room = 0) {
    request_.workers.push_back({.id = id, .free_bytes = 10 * room});
    std::sort(request_.workers.begin(), request_.workers.end(),
              [](const PlacementWorker& a, const PlacementWorker& b) { return a.id < b.id; });
  }
  // What it held is returned.
  std::vector<LayerExpert> Remove(const std::string& id) {
    const auto it = std::find_if(request_.workers.begin(), request_.workers.end(),
                                 [&](const PlacementWorker& worker) { return worker.id == id; });
    std::vector<LayerExpert> held = it->holds;
    request_.workers.erase(it);
    return held;
  }
  PlacementWorker& worker(const std::string& id) {
    return *std::find_if(request_.workers.begin(), request_.workers.end(),
                         [&](const PlacementWorker& worker) { return worker.id == id; });
  }

  // Places, checks the placement, and makes it what the workers hold. Returns how many experts are
  // on another worker than before; -1: no placement.
  std::int64_t Place() {
    const auto placement = StickyPlacement().Place(request_);
    SY_EXPECT_OK(placement.status());
    if (!placement.ok()) return -1;
    std::vector<std::vector<LayerExpert>> holds(request_.workers.size());
    const auto workers = static_cast<std::int32_t>(request_.workers.size());
    for (const LayerPlacement& layer : *placement) {
      SY_EXPECT_OK(ValidatePlacement(layer, request_.experts, workers));
      for (const PhysicalExpert& p : layer.experts) {
        holds[static_cast<std::size_t>(p.worker.value)].push_back({layer.layer, p.expert});
      }
    }
    std::int64_t moved = 0;
    for (std::size_t w = 0; w < holds.size(); ++w) {
      std::sort(holds[w].begin(), holds[w].end());
      const std::vector<LayerExpert>& before = request_.workers[w].holds;
      moved += std::count_if(holds[w].begin(), holds[w].end(), [&before](const LayerExpert& e) {
        return !std::binary_search(before.begin(), before.end(), e);
      });
      request_.workers[w].holds = holds[w];
      request_.workers[w].held.clear();
    }
    return moved;
  }

  [[nodiscard]] std::int64_t all() const {
    return static_cast<std::int64_t>(request_.layers.size()) * request_.experts;
  }
  // The fewest and the most experts of a worker, over all layers and in one layer.
  [[nodiscard]] std::tuple<std::size_t, std::size_t, std::int64_t, std::int64_t> Spread() const {
    std::size_t least = static_cast<std::size_t>(all());
    std::size_t most = 0;
    std::int64_t least_in_layer = request_.experts;
    std::int64_t most_in_layer = 0;
    for (const PlacementWorker& worker : request_.workers) {
      least = std::min(least, worker.holds.size());
      most = std::max(most, worker.holds.size());
      for (const LayerId layer : request_.layers) {
        const std::int64_t here =
            std::count_if(worker.holds.begin(), worker.holds.end(),
                          [layer](const LayerExpert& expert) { return expert.layer == layer; });
        least_in_layer = std::min(least_in_layer, here);
        most_in_layer = std::max(most_in_layer, here);
      }
    }
    return {least, most, least_in_layer, most_in_layer};
  }
  PlacementRequest& request() { return request_; }

 private:
  PlacementRequest request_;
};

std::string Name(int n) { return absl::StrCat("w", 1000 + n); }

void ExpectEven(const Pool& pool) {
  const auto [least, most, least_in_layer, most_in_layer] = pool.Spread();
  EXPECT_LE(most - least, 1U);
  EXPECT_LE(most_in_layer - least_in_layer, 1);
}

TEST(StickyPlacementTest, WithoutAPlanBeforeItCutsAscendingRuns) {
  Pool pool(1, 16);
  for (int w = 0; w < 4; ++w) pool.Add(Name(w));

  EXPECT_EQ(pool.Place(), 16);

  for (int w = 0; w < 4; ++w) {
    const auto& holds = pool.worker(Name(w)).holds;
    ASSERT_EQ(holds.size(), 4U);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(holds[static_cast<std::size_t>(i)].expert.value, 4 * w + i);
    }
  }
}

TEST(StickyPlacementTest, SpreadsWhatDoesNotDivideOverTheLayers) {
  Pool pool(12, 16);
  for (int w = 0; w < 3; ++w) pool.Add(Name(w));

  pool.Place();

  ExpectEven(pool);  // 64 each: 5 or 6 in each layer
  EXPECT_EQ(pool.worker(Name(0)).holds.size(), 64U);
}

TEST(StickyPlacementTest, PlacedAgainNothingMoves) {
  for (const int workers : {1, 2, 3, 5, 7, 8, 13, 16, 31}) {
    Pool pool(5, 16);
    for (int w = 0; w < workers; ++w) pool.Add(Name(w));
    pool.Place();

    EXPECT_EQ(pool.Place(), 0) << workers << " workers";
  }
}

// The bound of a join or leave of one of W workers: 1.1/W of all experts, and one more expert where
// no even spread of every layer moves fewer.
struct Model {
  std::int32_t layers;
  std::int32_t experts;
  int workers_max;  // the large ones take seconds with more
};
void PrintTo(const Model& model, std::ostream* out) {
  *out << model.layers << " layers of " << model.experts;
}

class StickyMovesTest : public ::testing::TestWithParam<Model> {};

TEST_P(StickyMovesTest, AJoinAndALeaveMoveOneShare) {
  const auto [layers, experts, workers_max] = GetParam();
  Pool pool(layers, experts);
  pool.Add(Name(0));
  pool.Place();
  const int last = std::min(workers_max, layers * experts) - 1;
  for (int w = 1; w <= last; ++w) {
    SCOPED_TRACE(w);
    pool.Add(Name(w));
    const std::int64_t joined = pool.Place();
    const double workers = w + 1;
    EXPECT_LE(static_cast<double>(joined), 1.1 * static_cast<double>(pool.all()) / workers + 1);
    EXPECT_GE(joined, pool.all() / (w + 1)) << "the new worker gets its share";
    ExpectEven(pool);
    if (::testing::Test::HasFailure()) return;
  }
  // In an order that has nothing to do with their names.
  for (int i = 0; i < last; ++i) {
    const double workers = last + 1 - i;
    SCOPED_TRACE(workers);
    const auto& all = pool.request().workers;
    pool.Remove(all[static_cast<std::size_t>(i * 37) % all.size()].id);
    const std::int64_t moved = pool.Place();
    EXPECT_LE(static_cast<double>(moved), 1.1 * static_cast<double>(pool.all()) / workers + 1);
    ExpectEven(pool);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StickyMovesTest,
                         ::testing::Values(Model{12, 16, 256}, Model{32, 8, 256}, Model{1, 64, 64},
                                           Model{48, 128, 256}, Model{61, 256, 96},
                                           Model{94, 60, 96}),
                         [](const auto& each) {
                           return absl::StrCat(each.param.layers, "x", each.param.experts);
                         });

TEST(StickyPlacementTest, MoreWorkersThanExpertsAreAllUsed) {
  Pool pool(8, 8);
  for (int w = 0; w < 16; ++w) pool.Add(Name(w));

  pool.Place();

  const auto [least, most, least_in_layer, most_in_layer] = pool.Spread();
  EXPECT_EQ(least, 4U);
  EXPECT_EQ(most, 4U);
  EXPECT_EQ(most_in_layer, 1);
  EXPECT_EQ(least_in_layer, 0);
}

TEST(StickyPlacementTest, AWorkerThatComesBackGetsWhatItHad) {
  Pool pool(6, 32);
  for (int w = 0; w < 4; ++w) pool.Add(Name(w));
  pool.Place();
  const std::vector<LayerExpert> had = pool.Remove(Name(2));
  pool.Place();

  pool.Add(Name(2));
  pool.worker(Name(2)).held = had;
  EXPECT_EQ(pool.Place(), static_cast<std::int64_t>(had.size()));

  EXPECT_EQ(pool.worker(Name(2)).holds, had);
}

TEST(StickyPlacementTest, ASmallWorkerTakesWhatFitsAndTheOthersTheRest) {
  Pool pool(4, 16);
  pool.Add("a", 6);
  pool.Add("b");
  pool.Add("c", 40);

  pool.Place();

  EXPECT_EQ(pool.worker("a").holds.size(), 6U);
  EXPECT_EQ(pool.worker("b").holds.size(), 29U);
  EXPECT_EQ(pool.worker("c").holds.size(), 29U);
}

TEST(StickyPlacementTest, AJoinNeverNeedsMoreMemoryThanWorkersHave) {
  SeededRng rng(5);
  for (int round = 0; round < 200; ++round) {
    Pool pool(3, 16);
    const int workers = 2 + static_cast<int>(rng.Below(5));
    // Just enough for an even share.
    for (int w = 0; w < workers; ++w) pool.Add(Name(w), (48 + workers - 1) / workers);
    ASSERT_GE(pool.Place(), 0);

    pool.Add(Name(99), 48 / workers);

    EXPECT_GE(pool.Place(), 0) << "round " << round;
  }
}

TEST(StickyPlacementTest, RefusesWhatFitsOnlyWithoutTheOldPlan) {
  Pool pool(1, 4);
  pool.Add("a", 4);
  pool.Add("b", 4);
  pool.Place();
  // It holds two experts that it cannot give back before the new plan serves.
  auto& a = pool.worker("a");
  a.free_bytes = 20;
  std::swap(a.holds, pool.worker("b").holds);
  a.holds = {{LayerId{0}, ExpertId{0}}, {LayerId{0}, ExpertId{1}}, {LayerId{0}, ExpertId{2}}};
  pool.worker("b").holds.clear();

  EXPECT_THAT(StickyPlacement().Place(pool.request()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

}  // namespace
}  // namespace switchyard
