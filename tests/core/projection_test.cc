#include "core/projection.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// Arrays indexed by Projection and rows of manifests rely on this order.
TEST(ProjectionTest, AreListedInTheOrderOfTheirValuesUnderTheNamesOfCheckpoints) {
  ASSERT_EQ(kAllProjections.size(), 3U);
  for (std::size_t i = 0; i < kAllProjections.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kAllProjections[i]), i);
  }
  EXPECT_EQ(ProjectionName(Projection::kGate), "gate_proj");
  EXPECT_EQ(ProjectionName(Projection::kUp), "up_proj");
  EXPECT_EQ(ProjectionName(Projection::kDown), "down_proj");
}

}  // namespace
}  // namespace switchyard
