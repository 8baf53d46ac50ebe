#include "ctl/doctor/within.h"

#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace switchyard::ctl {
namespace {

TEST(WithinTest, ReturnsWhatWorkReturns) {
  EXPECT_EQ(Within<std::string>(std::chrono::seconds(30), [] { return std::string("done"); }),
            "done");
}

TEST(WithinTest, LeavesWorkThatDoesNotEnd) {
  const auto release = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  const auto result = Within<int>(std::chrono::milliseconds(20), [release, ended] {
    release->get_future().wait();
    ended->set_value();
    return 1;
  });
  EXPECT_FALSE(result.has_value());
  release->set_value();
  ended->get_future().wait();
}

TEST(BudgetTest, IsWhatAStepMayTakeOfTheWhole) {
  const Budget budget(std::chrono::seconds(100));
  EXPECT_EQ(budget.Left(std::chrono::seconds(2)), std::chrono::seconds(2));
  EXPECT_LE(budget.Left(std::chrono::hours(1)), std::chrono::seconds(100));
  EXPECT_FALSE(budget.over());
  EXPECT_TRUE(Budget(Duration::zero()).over());
}

}  // namespace
}  // namespace switchyard::ctl
