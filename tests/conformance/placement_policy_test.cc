// Every PlacementPolicy in the registry, held to the contract of placement_policy.h.
#include "coordinator/placement/placement_policy.h"

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "coordinator/placement/registry.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

PlacementRequest Request(std::int32_t experts, std::int32_t workers) {
  PlacementRequest request{.layers = {LayerId{0}, LayerId{1}, LayerId{5}},
                           .experts = experts,
                           .expert_bytes = 1000,
                           .workers = {}};
  for (std::int32_t w = 0; w < workers; ++w) request.workers.push_back({absl::StrCat("w", w), 0});
  return request;
}

class PlacementPolicyConformance : public ::testing::TestWithParam<PlacementPolicyEntry> {
 protected:
  std::unique_ptr<PlacementPolicy> policy_ = GetParam().make();
};

TEST_P(PlacementPolicyConformance, IsRegisteredUnderItsName) {
  EXPECT_EQ(policy_->name(), GetParam().name);
  SY_ASSERT_OK_AND_ASSIGN(const auto made, MakePlacementPolicy(GetParam().name));
  EXPECT_EQ(made->name(), GetParam().name);
}

TEST_P(PlacementPolicyConformance, CoversEveryExpertForAnyNumberOfWorkers) {
  for (const std::int32_t experts : {1, 16, 60, 128}) {
    for (std::int32_t workers = 1; workers <= std::min(experts, 20); ++workers) {
      const PlacementRequest request = Request(experts, workers);

      SY_ASSERT_OK_AND_ASSIGN(const auto placement, policy_->Place(request));

      ASSERT_EQ(placement.size(), request.layers.size());
      for (std::size_t i = 0; i < placement.size(); ++i) {
        EXPECT_EQ(placement[i].layer, request.layers[i]);
        SY_EXPECT_OK(ValidatePlacement(placement[i], experts, workers));
        std::set<WorkerOrdinal> used;
        for (const PhysicalExpert& p : placement[i].experts) used.insert(p.worker);
        EXPECT_EQ(static_cast<std::int32_t>(used.size()), workers);
      }
    }
  }
}

TEST_P(PlacementPolicyConformance, IsPure) {
  const PlacementRequest request = Request(61, 7);
  SY_ASSERT_OK_AND_ASSIGN(const auto first, policy_->Place(request));
  SY_ASSERT_OK(policy_->Place(Request(16, 3)));

  SY_ASSERT_OK_AND_ASSIGN(const auto second, policy_->Place(request));

  EXPECT_EQ(first, second);
}

TEST_P(PlacementPolicyConformance, NeverExceedsAWorkersMemory) {
  SeededRng rng(3);
  int placed = 0;
  for (int round = 0; round < 500; ++round) {
    PlacementRequest request = Request(16, 1 + static_cast<std::int32_t>(rng.Below(6)));
    for (PlacementWorker& worker : request.workers) {
      worker.free_bytes = static_cast<std::int64_t>(rng.Below(60'000));  // the model: 48,000
    }

    const auto placement = policy_->Place(request);

    if (!placement.ok()) {
      EXPECT_THAT(placement, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
      continue;
    }
    ++placed;
    std::vector<std::int64_t> used(request.workers.size(), 0);
    for (const LayerPlacement& layer : *placement) {
      for (const PhysicalExpert& p : layer.experts) {
        used[static_cast<std::size_t>(p.worker.value)] += request.expert_bytes;
      }
    }
    for (std::size_t w = 0; w < used.size(); ++w) {
      const std::int64_t free = request.workers[w].free_bytes;
      EXPECT_TRUE(free == 0 || used[w] <= free) << "round " << round << " worker " << w;
    }
  }
  EXPECT_GT(placed, 50) << "too few requests that fit: the check says little";
}

TEST_P(PlacementPolicyConformance, NamesTheWorkerWithoutRoom) {
  PlacementRequest request = Request(16, 4);
  request.workers[2].free_bytes = 999;

  const auto placement = policy_->Place(request);

  ASSERT_THAT(placement, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_EQ(MetadataOf(placement.status()).at("worker"), "w2");
}

TEST_P(PlacementPolicyConformance, RefusesNoWorkersAndMoreWorkersThanExpertsOfAllLayers) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  EXPECT_THAT(policy_->Place(Request(16, 0)), bad);
  EXPECT_THAT(policy_->Place(Request(3, 10)), bad) << "3 layers of 3 experts";
}

INSTANTIATE_TEST_SUITE_P(All, PlacementPolicyConformance, ::testing::ValuesIn(PlacementPolicies()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(PlacementPolicyRegistryTest, NamesTheKnownOnesWhenAskedForAnother) {
  const auto made = MakePlacementPolicy("astrology");

  ASSERT_THAT(made, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_NE(made.status().message().find("contiguous"), absl::string_view::npos);
}

}  // namespace
}  // namespace switchyard
