#include "core/base/port_range.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(PortRangeTest, ReadsARange) {
  const auto range = ParsePortRange("20000-20099");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 20000);
  EXPECT_EQ(range->last, 20099);
  EXPECT_TRUE(ParsePortRange("1024-1024").has_value());
  EXPECT_TRUE(ParsePortRange("1024-65535").has_value());
}

TEST(PortRangeTest, NothingMeansAnyPort) {
  const auto range = ParsePortRange("");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 0);
  EXPECT_EQ(range->last, 0);
}

TEST(PortRangeTest, RefusesWhatIsNoRange) {
  for (const char* const bad : {"20000", "-", "20000-", "-20000", "20001-20000", "1023-2000",
                                "2000-65536", "a-b", "1-2-3", "2000-3000-4000", "-1-2000"}) {
    EXPECT_FALSE(ParsePortRange(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace switchyard
