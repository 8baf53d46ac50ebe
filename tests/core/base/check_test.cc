#include "core/base/check.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

enum class Color { kRed, kBlue };

int Number(Color color) {
  switch (color) {
    case Color::kRed:
      return 1;
    case Color::kBlue:
      return 2;
  }
  SY_UNREACHABLE("a color that is none");
}

TEST(CheckTest, GoesOnWhenTheConditionHolds) {
  int evaluated = 0;
  const auto text = [&evaluated] {
    ++evaluated;
    return "never said";
  };

  SY_CHECK(Number(Color::kBlue) == 2, text());
  // NOLINTBEGIN(readability-braces-around-statements): what is tested
  if (evaluated > 0)
    SY_CHECK(false, "a check is one statement, also without braces");
  else
    ++evaluated;
  // NOLINTEND(readability-braces-around-statements)

  EXPECT_EQ(evaluated, 1) << "the text is evaluated on failure only";
}

TEST(CheckDeathTest, AFailedCheckSaysWhatAndWhereAndAborts) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const int slot = 7;

  EXPECT_EXIT(SY_CHECK(slot < 4, "a slot of another ring"), ::testing::KilledBySignal(SIGABRT),
              "CHECK failed: `slot < 4`: a slot of another ring \\(.*check_test.cc:[0-9]+\\)");
}

TEST(CheckDeathTest, TheEndOfAnExhaustiveSwitchIsNeverReached) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";

  EXPECT_DEATH(Number(static_cast<Color>(9)), "unreachable.*a color that is none");
}

}  // namespace
}  // namespace switchyard
