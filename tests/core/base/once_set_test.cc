#include "core/base/once_set.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(OnceSetTest, EachReasonIsFirstOnce) {
  OnceSet once;

  EXPECT_TRUE(once.First("fp8_to_int8"));
  EXPECT_FALSE(once.First("fp8_to_int8"));
  EXPECT_TRUE(once.First("int8_to_fp8"));
  OnceSet other;
  EXPECT_TRUE(other.First("fp8_to_int8")) << "two processes know nothing of each other";
}

TEST(OnceSetTest, IsFirstOnceAmongThreads) {
  OnceSet once;
  std::atomic<int> firsts = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) firsts += once.First(std::to_string(i)) ? 1 : 0;
      });
    }
  }

  EXPECT_EQ(firsts, 100);
}

}  // namespace
}  // namespace switchyard
