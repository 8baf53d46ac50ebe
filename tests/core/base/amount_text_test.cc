#include "core/base/amount_text.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(AmountTextTest, CountsInSingularAndPlural) {
  EXPECT_EQ(CountText(1, "worker"), "1 worker");
  EXPECT_EQ(CountText(0, "worker"), "0 workers");
  EXPECT_EQ(CountText(2, "epoch"), "2 epochs");
}

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

TEST(AmountTextTest, APartHasTheUnitOfTheWhole) {
  EXPECT_EQ(ShareText(0, 0), "0 of 0 B");
  EXPECT_EQ(ShareText(12, 1023), "12 of 1023 B");
  EXPECT_EQ(ShareText(12, 2048), "0.0 of 2.0 KiB");
  EXPECT_EQ(ShareText(6 * kGiB / 5, 17 * kGiB / 10), "1.1 of 1.6 GiB");
  EXPECT_EQ(ShareText(kGiB, 3 * 1024 * kGiB), "0.0 of 3.0 TiB");
}

TEST(AmountTextTest, APartNeverLooksLikeTheWhole) {
  EXPECT_EQ(ShareText(2 * kGiB - 1, 2 * kGiB), "1.9 of 2.0 GiB");
  EXPECT_EQ(ShareText(2 * kGiB, 2 * kGiB), "2.0 of 2.0 GiB");
}

TEST(AmountTextTest, ARateHasTheUnitThatFits) {
  EXPECT_EQ(RateText(0), "0 B/s");
  EXPECT_EQ(RateText(412 * kMiB), "412.0 MiB/s");
  EXPECT_EQ(RateText(3 * kGiB / 2), "1.5 GiB/s");
}

TEST(AmountTextTest, ATimeIsRoundedUp) {
  EXPECT_EQ(TimeText(-std::chrono::seconds(1)), "0 s");
  EXPECT_EQ(TimeText({}), "0 s");
  EXPECT_EQ(TimeText(std::chrono::milliseconds(1)), "1 s");
  EXPECT_EQ(TimeText(std::chrono::seconds(119)), "119 s");
  EXPECT_EQ(TimeText(std::chrono::seconds(121)), "3 min");
  EXPECT_EQ(TimeText(std::chrono::minutes(60)), "1 h");
  EXPECT_EQ(TimeText(std::chrono::minutes(125)), "2 h 5 min");
}

}  // namespace
}  // namespace switchyard
