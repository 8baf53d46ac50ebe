#include "coordinator/placement/contiguous.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

// Experts of each worker as "first..last", in one layer.
std::vector<std::string> Runs(std::int32_t experts, std::int32_t workers) {
  PlacementRequest request{
      .layers = {LayerId{2}}, .experts = experts, .expert_bytes = 1, .workers = {}};
  request.workers.resize(static_cast<std::size_t>(workers), {"w", 0});
  const auto placement = ContiguousPlacement().Place(request);
  if (!placement.ok()) return {};
  std::vector<std::string> runs;
  const PlacementMap map(placement->front(), experts, workers);
  for (std::int32_t w = 0; w < workers; ++w) {
    const auto mine = map.OnWorker(WorkerOrdinal{w});
    runs.push_back(absl::StrCat(mine.front().expert.value, "..", mine.back().expert.value));
    for (std::size_t i = 1; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].expert.value, mine[i - 1].expert.value + 1) << "worker " << w;
    }
  }
  return runs;
}

TEST(ContiguousPlacementTest, SplitsEvenly) {
  EXPECT_EQ(Runs(16, 4), (std::vector<std::string>{"0..3", "4..7", "8..11", "12..15"}));
}

TEST(ContiguousPlacementTest, SizesDifferByAtMostOne) {
  EXPECT_EQ(Runs(16, 3), (std::vector<std::string>{"0..5", "6..10", "11..15"}));
  EXPECT_EQ(Runs(16, 5), (std::vector<std::string>{"0..3", "4..6", "7..9", "10..12", "13..15"}));
}

TEST(ContiguousPlacementTest, GivesOneMoreToThoseThatHaveTheRoom) {
  PlacementRequest request{.layers = {LayerId{0}}, .experts = 5, .expert_bytes = 10, .workers = {}};
  request.workers = {{"a", 29}, {"b", 20}, {"c", 30}};

  const auto tight = ContiguousPlacement().Place(request);  // 2 + 1 + 2 or any other order
  request.workers[0].free_bytes = request.workers[2].free_bytes = 19;

  SY_ASSERT_OK(tight);
  EXPECT_EQ(PlacementMap(tight->front(), 5, 3).OnWorker(WorkerOrdinal{0}).size(), 2U);
  EXPECT_EQ(ContiguousPlacement().Place(request).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ContiguousPlacementTest, TakesOneExpertEach) {
  EXPECT_EQ(Runs(3, 3), (std::vector<std::string>{"0..0", "1..1", "2..2"}));
}

}  // namespace
}  // namespace switchyard
