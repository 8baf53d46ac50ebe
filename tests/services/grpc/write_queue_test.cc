#include "services/grpc/write_queue.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

struct Text {
  std::string value;
  [[nodiscard]] std::size_t ByteSizeLong() const { return value.size(); }
};
using Queue = WriteQueue<Text>;
using Verdict = Queue::Verdict;

TEST(WriteQueueTest, OneMessageIsOutAtATimeAndOrderIsKept) {
  Queue queue(8, 1000);

  EXPECT_EQ(queue.Push({"a"}), Verdict::kStart);
  EXPECT_EQ(queue.front()->value, "a");
  EXPECT_EQ(queue.Push({"b"}), Verdict::kQueued);
  EXPECT_EQ(queue.Push({"c"}), Verdict::kQueued);

  EXPECT_EQ(queue.Advance().write->value, "b");
  EXPECT_EQ(queue.Advance().write->value, "c");
  const Queue::Next last = queue.Advance();
  EXPECT_EQ(last.write, nullptr);
  EXPECT_FALSE(last.finish);
  EXPECT_EQ(queue.Push({"d"}), Verdict::kStart);
}

TEST(WriteQueueTest, BoundsMessagesThatWait) {
  Queue queue(2, 1000);
  EXPECT_EQ(queue.Push({"written"}), Verdict::kStart);
  EXPECT_EQ(queue.Push({"waits 1"}), Verdict::kQueued);
  EXPECT_EQ(queue.Push({"waits 2"}), Verdict::kQueued);

  EXPECT_EQ(queue.Push({"too many"}), Verdict::kFull);

  queue.Advance();
  EXPECT_EQ(queue.Push({"room again"}), Verdict::kQueued);
}

TEST(WriteQueueTest, BoundsBytesButTakesOneLargeMessage) {
  Queue queue(100, 10);
  EXPECT_EQ(queue.Push({std::string(50, 'x')}), Verdict::kStart);
  EXPECT_EQ(queue.Push({std::string(50, 'y')}), Verdict::kQueued);

  EXPECT_EQ(queue.Push({"z"}), Verdict::kFull);

  queue.Advance();
  queue.Advance();
  EXPECT_EQ(queue.Push({std::string(5, 'a')}), Verdict::kStart);
  EXPECT_EQ(queue.Push({std::string(4, 'b')}), Verdict::kQueued);
  EXPECT_EQ(queue.Push({"c"}), Verdict::kQueued);
  EXPECT_EQ(queue.Push({"d"}), Verdict::kFull);
}

TEST(WriteQueueTest, CloseOnAnIdleQueueFinishesOnce) {
  Queue queue(8, 1000);

  EXPECT_TRUE(queue.Close(false));

  EXPECT_FALSE(queue.Close(false));
  EXPECT_EQ(queue.Push({"late"}), Verdict::kClosed);
}

TEST(WriteQueueTest, CloseWaitsForWhatWasWritten) {
  Queue queue(8, 1000);
  queue.Push({"a"});
  queue.Push({"b"});

  EXPECT_FALSE(queue.Close(false));

  EXPECT_EQ(queue.Push({"late"}), Verdict::kClosed);
  EXPECT_EQ(queue.Advance().write->value, "b");
  EXPECT_TRUE(queue.Advance().finish);
}

TEST(WriteQueueTest, CloseMayDropWhatWaits) {
  Queue queue(8, 1000);
  queue.Push({"a"});
  queue.Push({"b"});
  queue.Push({"c"});

  EXPECT_FALSE(queue.Close(true));

  EXPECT_EQ(queue.front()->value, "a");
  EXPECT_TRUE(queue.Advance().finish);
}

TEST(WriteQueueTest, AHeldStreamIsFinishedByTheLastRelease) {
  Queue queue(8, 1000);
  EXPECT_TRUE(queue.Hold());
  EXPECT_TRUE(queue.Hold());
  queue.Push({"a"});

  EXPECT_FALSE(queue.Close(false));
  EXPECT_FALSE(queue.Advance().finish);
  EXPECT_FALSE(queue.Release());

  EXPECT_TRUE(queue.Release());
  EXPECT_FALSE(queue.Hold());
}

TEST(WriteQueueTest, AReleaseBeforeTheEndDoesNotFinish) {
  Queue queue(8, 1000);
  EXPECT_TRUE(queue.Hold());
  EXPECT_FALSE(queue.Release());
  EXPECT_FALSE(queue.closed());
  queue.Push({"a"});
  EXPECT_TRUE(queue.Hold());

  EXPECT_FALSE(queue.Close(false));
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.Release());

  EXPECT_TRUE(queue.Advance().finish);
}

// Whatever threads push and close while another advances, every accepted message is written once
// and in its pusher's order, and exactly one caller must finish, after the last write.
TEST(WriteQueueTest, ExactlyOneCallerFinishesUnderRaces) {
  const std::uint64_t seed = 5150;
  SeededRng rng(seed);
  for (int round = 0; round < 200; ++round) {
    Queue queue(64, 100000);
    std::atomic<int> finishes = 0;
    std::atomic<int> writes_out = 0;
    std::atomic<int> accepted = 0;
    int written = 0;  // only used by the thread that completes the current write
    const auto run_writes = [&] {
      while (true) {
        ASSERT_EQ(writes_out.fetch_add(1), 0);
        ++written;
        writes_out.fetch_sub(1);
        const Queue::Next next = queue.Advance();
        if (next.finish) ++finishes;
        if (next.write == nullptr) return;
      }
    };
    const std::uint64_t pushes = 1 + rng.Below(30);
    std::vector<std::thread> threads;
    for (int pusher = 0; pusher < 2; ++pusher) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < pushes; ++i) {
          const Verdict verdict = queue.Push({std::to_string(i)});
          if (verdict == Verdict::kStart || verdict == Verdict::kQueued) ++accepted;
          if (verdict == Verdict::kStart) run_writes();
        }
      });
    }
    for (int closer = 0; closer < 2; ++closer) {
      threads.emplace_back([&] {
        const bool held = queue.Hold();
        if (queue.Close(false)) ++finishes;
        if (held && queue.Release()) ++finishes;
      });
    }
    for (std::thread& thread : threads) thread.join();

    ASSERT_EQ(finishes, 1) << "seed " << seed << " round " << round;
    ASSERT_EQ(written, accepted) << "seed " << seed << " round " << round;
  }
}

TEST(WriteQueueDeathTest, TurnsThatNobodyHasEndTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Queue queue(1, 100);

  EXPECT_DEATH(queue.Advance(), "no message is being written");
  EXPECT_DEATH(queue.front(), "no message is being written");
  EXPECT_DEATH(queue.Release(), "without Hold");
}

}  // namespace
}  // namespace switchyard
