#include "services/worker/step_memory.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(StepMemoryTest, GivesBackWhatAShareHasTaken) {
  StepMemory memory(100);
  std::optional<StepMemory::Share> share(std::in_place);

  EXPECT_TRUE(share->Grow(&memory, 60));
  EXPECT_FALSE(share->Grow(&memory, 41));
  EXPECT_EQ(memory.used(), 60U);
  EXPECT_TRUE(share->Grow(&memory, 40));
  EXPECT_EQ(memory.used(), 100U);
  share.reset();

  EXPECT_EQ(memory.used(), 0U);
}

TEST(StepMemoryTest, AShareMovesAndShrinks) {
  StepMemory memory(100);
  StepMemory::Share share;
  ASSERT_TRUE(share.Grow(&memory, 60));

  share.ShrinkTo(80);
  EXPECT_EQ(memory.used(), 60U);
  share.ShrinkTo(20);
  EXPECT_EQ(memory.used(), 20U);
  {
    const StepMemory::Share moved(std::move(share));
    EXPECT_EQ(memory.used(), 20U);
  }

  EXPECT_EQ(memory.used(), 0U);
}

TEST(StepMemoryTest, ASizeThatWouldOverflowDoesNotFit) {
  StepMemory memory(100);
  StepMemory::Share first;
  StepMemory::Share second;
  ASSERT_TRUE(first.Grow(&memory, 1));

  EXPECT_FALSE(second.Grow(&memory, static_cast<std::size_t>(-1)));
  EXPECT_EQ(memory.used(), 1U);
}

TEST(StepMemoryTest, ThreadsNeverTakeMoreThanThereIs) {
  StepMemory memory(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&memory] {
      for (int round = 0; round < 2000; ++round) {
        StepMemory::Share share;
        share.Grow(&memory, 1);
        EXPECT_LE(memory.used(), 3U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.used(), 0U);
}

}  // namespace
}  // namespace switchyard
