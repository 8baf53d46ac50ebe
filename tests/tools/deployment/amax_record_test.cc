#include "tools/deployment/amax_record.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

AttachmentCounters::Hit Hit(int layer, int expert, float inputs, float middle) {
  return {.layer = LayerId{layer},
          .expert = ExpertId{expert},
          .rows = 3,
          .inputs_amax = inputs,
          .middle_amax = middle};
}

TEST(AmaxRecordTest, TheLargestOfAllHitsCountsAndEveryExpertHasAPlace) {
  constexpr int kLayers = 3;
  constexpr int kExperts = 5;
  SeededRng rng(91);
  std::vector<AttachmentCounters::Hit> hits;
  std::vector<ExpertAmax> wanted(kLayers * kExperts);
  for (int i = 0; i < 40; ++i) {
    const int layer = static_cast<int>(rng.Below(kLayers));
    const int expert = static_cast<int>(rng.Below(kExperts - 1));  // the last sees no row
    const auto inputs = static_cast<float>(rng.Uniform()) + 0.125F;
    const auto middle = static_cast<float>(rng.Uniform()) + 0.125F;
    hits.push_back(Hit(layer, expert, inputs, middle));
    ExpertAmax& most = wanted[static_cast<std::size_t>(layer * kExperts + expert)];
    most = {std::max(most.gate_up, inputs), std::max(most.down, middle)};
  }

  SY_ASSERT_OK_AND_ASSIGN(const AmaxTable table,
                          MergeAmax({.layers = kLayers, .experts = kExperts}, hits));

  ASSERT_EQ(table.layers.size(), static_cast<std::size_t>(kLayers));
  for (int layer = 0; layer < kLayers; ++layer) {
    const LayerAmax& row = table.layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(row.layer, layer);
    ASSERT_EQ(row.experts.size(), static_cast<std::size_t>(kExperts));
    for (int expert = 0; expert < kExperts; ++expert) {
      const auto e = static_cast<std::size_t>(expert);
      EXPECT_EQ(row.experts[e], wanted[static_cast<std::size_t>(layer * kExperts) + e])
          << "layer " << layer << " expert " << expert;
    }
  }
  EXPECT_EQ(table.layers[1].experts[kExperts - 1], ExpertAmax{});
}

TEST(AmaxRecordTest, RefusesHitsOutsideTheModelByName) {
  const AmaxShape shape{.layers = 2, .experts = 4};
  for (const auto& hit : {Hit(2, 0, 1, 1), Hit(0, 4, 1, 1), Hit(-1, 0, 1, 1), Hit(0, -1, 1, 1)}) {
    const std::vector<AttachmentCounters::Hit> hits{Hit(0, 0, 1, 1), hit};

    const auto table = MergeAmax(shape, hits);

    EXPECT_THAT(table, FailsWith(absl::StatusCode::kInternal, Reason::kInternal));
    EXPECT_THAT(std::string(table.status().message()), HasSubstr("the model has 2 layers of 4"));
  }
}

TEST(AmaxRecordTest, NothingRecordedIsNoTable) {
  const AmaxShape shape{.layers = 2, .experts = 4};
  const std::vector<AttachmentCounters::Hit> unrecorded{Hit(0, 1, 0, 0), Hit(1, 2, 0, 0)};

  EXPECT_THAT(MergeAmax(shape, {}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
  EXPECT_THAT(MergeAmax(shape, unrecorded),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
