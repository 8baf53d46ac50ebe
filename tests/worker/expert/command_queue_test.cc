#include "worker/expert/command_queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using namespace std::chrono_literals;
using testing::FailsWith;

// Lets a test wait until something has been queued.
class Woken {
 public:
  std::function<void()> Wake() {
    return [this] {
      {
        const std::lock_guard lock(mutex_);
        ++times_;
      }
      changed_.notify_all();
    };
  }
  bool Await(int times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [&] { return times_ >= times; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
};

TEST(CommandQueueTest, RunsCallsOnTheOwnersThreadAndGivesBackTheirAnswer) {
  Woken woken;
  CommandQueue queue(woken.Wake(), 4);
  auto answer = std::async(std::launch::async, [&] {
    return queue.Call<absl::StatusOr<std::thread::id>>(10s,
                                                       [] { return std::this_thread::get_id(); });
  });
  ASSERT_TRUE(woken.Await(1));

  EXPECT_FALSE(queue.empty());
  EXPECT_TRUE(queue.RunAll());

  SY_ASSERT_OK_AND_ASSIGN(const std::thread::id ran_on, answer.get());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.RunAll());
}

TEST(CommandQueueTest, PassesOnTheErrorOfACall) {
  Woken woken;
  CommandQueue queue(woken.Wake(), 4);
  auto answer = std::async(std::launch::async, [&] {
    return queue.Call<absl::Status>(10s, [] {
      return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession, "none");
    });
  });
  ASSERT_TRUE(woken.Await(1));

  queue.RunAll();

  EXPECT_THAT(answer.get(), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownSession));
}

TEST(CommandQueueTest, NeverRunsACallThatWasGivenUp) {
  CommandQueue queue([] {}, 1);
  bool ran = false;
  const auto call = [&] {
    return queue.Call<absl::Status>(1ms, [&ran] {
      ran = true;
      return absl::OkStatus();
    });
  };

  EXPECT_THAT(call(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNoCredits));

  queue.RunAll();
  EXPECT_FALSE(ran);
  EXPECT_THAT(call(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNoCredits));
}

TEST(CommandQueueTest, WaitsForACallThatRunsPastItsDeadline) {
  Woken woken;
  CommandQueue queue(woken.Wake(), 4);
  std::promise<void> begun;
  auto answer = std::async(std::launch::async, [&] {
    return queue.Call<absl::StatusOr<int>>(200ms, [&]() -> absl::StatusOr<int> {
      const auto end = std::chrono::steady_clock::now() + 250ms;
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
      return 7;
    });
  });
  ASSERT_TRUE(woken.Await(1));

  queue.RunAll();

  const absl::StatusOr<int> got = answer.get();
  SY_ASSERT_OK(got);
  EXPECT_EQ(*got, 7);
}

TEST(CommandQueueTest, RefusesMoreCallsThanItsBound) {
  Woken woken;
  CommandQueue queue(woken.Wake(), 1);
  auto first = std::async(std::launch::async, [&] {
    return queue.Call<absl::Status>(10s, [] { return absl::OkStatus(); });
  });
  ASSERT_TRUE(woken.Await(1));

  EXPECT_THAT(queue.Call<absl::Status>(10s, [] { return absl::OkStatus(); }),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));

  queue.RunAll();
  SY_EXPECT_OK(first.get());
}

TEST(CommandQueueTest, CloseAnswersWhatWaitsAndWhatComesLater) {
  Woken woken;
  CommandQueue queue(woken.Wake(), 4);
  auto waiting = std::async(std::launch::async, [&] {
    return queue.Call<absl::Status>(10s, [] { return absl::OkStatus(); });
  });
  ASSERT_TRUE(woken.Await(1));

  queue.Close();

  EXPECT_THAT(waiting.get(), FailsWith(absl::StatusCode::kUnavailable, Reason::kSessionClosed));
  EXPECT_THAT(queue.Call<absl::Status>(10s, [] { return absl::OkStatus(); }),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kSessionClosed));
  EXPECT_FALSE(queue.Post([] {}));
}

TEST(CommandQueueTest, RunsPostedCommandsInOrderWhoeverPosts) {
  CommandQueue queue([] {}, 4);
  std::vector<int> ran;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(queue.Post([&ran, i] { ran.push_back(i); }));

  queue.RunAll();

  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CommandQueueTest, ManyCallersAndOneOwnerLoseNothing) {
  CommandQueue queue([] {}, 64);
  std::atomic<bool> stop{false};
  int sum = 0;  // The owner's alone.
  std::thread owner([&] {
    while (!stop.load()) {
      if (!queue.RunAll()) std::this_thread::yield();
    }
  });
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        SY_EXPECT_OK(queue.Call<absl::Status>(10s, [&sum] {
          ++sum;
          return absl::OkStatus();
        }));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  stop.store(true);
  owner.join();

  EXPECT_EQ(sum, 800);
}

}  // namespace
}  // namespace switchyard
