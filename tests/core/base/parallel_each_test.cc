#include "core/base/parallel_each.h"

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

absl::Status Failure(std::size_t item) { return absl::InternalError(absl::StrCat("item ", item)); }

TEST(ParallelEachTest, DoesEachItemOnce) {
  for (const int threads : {-1, 0, 1, 2, 7, 64}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{200}}) {
      std::vector<std::atomic<int>> done(count);
      SY_EXPECT_OK(ParallelEach(count, threads, [&](std::size_t item) {
        ++done[item];
        return absl::OkStatus();
      }));
      for (const std::atomic<int>& each : done) EXPECT_EQ(each, 1);
    }
  }
}

TEST(ParallelEachTest, WorksOnAsManyItemsAsThereAreThreads) {
  // Would wait for ever if one thread took two of the three.
  std::barrier together(3);
  SY_EXPECT_OK(ParallelEach(3, 3, [&](std::size_t) {
    together.arrive_and_wait();
    return absl::OkStatus();
  }));
}

TEST(ParallelEachTest, OneThreadDoesItemsInOrderOnTheCaller) {
  std::vector<std::size_t> order;
  const auto caller = std::this_thread::get_id();
  SY_EXPECT_OK(ParallelEach(4, 1, [&](std::size_t item) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(item);
    return absl::OkStatus();
  }));
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

// Whichever fails first in time, a loop would have met the lower one first.
TEST(ParallelEachTest, GivesTheErrorOfTheFirstItemThatFailed) {
  for (int round = 0; round < 50; ++round) {
    std::barrier together(4);
    EXPECT_EQ(ParallelEach(4, 4,
                           [&](std::size_t item) {
                             together.arrive_and_wait();
                             return item == 0 ? absl::OkStatus() : Failure(item);
                           }),
              Failure(1));
  }
}

TEST(ParallelEachTest, BeginsNoItemAfterAFailure) {
  std::barrier together(4);
  std::atomic<int> begun{0};

  EXPECT_EQ(ParallelEach(1000, 4,
                         [&](std::size_t item) {
                           ++begun;
                           together.arrive_and_wait();
                           return Failure(item);
                         }),
            Failure(0));

  EXPECT_EQ(begun, 4);
}

}  // namespace
}  // namespace switchyard
