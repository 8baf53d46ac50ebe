#include "quantize/calibration.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

AmaxTable TableOf(std::vector<ExpertAmax> experts) { return {{{3, std::move(experts)}}}; }

TEST(CalibrationTest, GateAndUpShareTheLayersMaximumAndDownIsEachExperts) {
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputAmax amax,
                          InputAmaxOf(TableOf({{2, 0.5F}, {7, 0.25F}, {3, 4}}), 3, 3));

  EXPECT_EQ(amax.gate_up, 7);
  EXPECT_THAT(amax.down, ElementsAre(0.5F, 0.25F, 4));
  EXPECT_EQ(amax.of(1, Projection::kUp), 7);
  EXPECT_EQ(amax.of(1, Projection::kDown), 0.25F);
  EXPECT_THAT(amax.warnings, IsEmpty());
}

TEST(CalibrationTest, ExpertsWithoutRowsTakeTheLayersLargest) {
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputAmax amax,
                          InputAmaxOf(TableOf({{0, 0}, {7, 0.25F}, {3, 4}, {0, 0}}), 3, 4));

  EXPECT_THAT(amax.down, ElementsAre(4, 0.25F, 4, 4));
  ASSERT_EQ(amax.warnings.size(), 1U);
  EXPECT_THAT(amax.warnings[0], HasSubstr("experts 0, 3"));
}

TEST(CalibrationTest, LongListsOfIdleExpertsAreCut) {
  std::vector<ExpertAmax> experts(20);
  experts[5] = {1, 1};
  SY_ASSERT_OK_AND_ASSIGN(const LayerInputAmax amax, InputAmaxOf(TableOf(experts), 3, 20));
  EXPECT_THAT(amax.warnings[0], HasSubstr("and 11 more"));
}

TEST(CalibrationTest, RefusesTablesOfOtherModels) {
  const AmaxTable table = TableOf({{2, 0.5F}, {7, 0.25F}});
  EXPECT_THAT(InputAmaxOf(table, 2, 2), FailsWith(kBad, Reason::kBadConfig));
  EXPECT_THAT(InputAmaxOf(table, 3, 3), FailsWith(kBad, Reason::kBadConfig));
  EXPECT_THAT(InputAmaxOf(TableOf({{0, 0}, {0, 0}}), 3, 2), FailsWith(kBad, Reason::kBadConfig));
  EXPECT_EQ(MetadataOf(InputAmaxOf(table, 2, 2).status())["layer"], "2");
}

}  // namespace
}  // namespace switchyard
