#include "coordinator/threads/serial_executor.h"

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(SerialExecutorTest, RunsTasksInOrderAndFinishesThem) {
  std::vector<int> ran;
  {
    SerialExecutor executor;
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(executor.Run([&ran, i] { ran.push_back(i); }));
    }
  }

  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(SerialExecutorTest, DropsWhatWaitsAndRefusesMore) {
  SerialExecutor executor;
  std::promise<void> started;
  std::promise<void> go;
  bool second_ran = false;
  executor.Run([&] {
    started.set_value();
    go.get_future().wait();
  });
  executor.Run([&second_ran] { second_ran = true; });
  started.get_future().wait();
  std::thread stopper([&] { executor.Stop(SerialExecutor::Pending::kDrop, hours(1)); });
  while (executor.Run([] {})) std::this_thread::yield();

  go.set_value();
  stopper.join();

  EXPECT_FALSE(second_ran);
}

TEST(SerialExecutorTest, LeavesATaskThatTakesTooLong) {
  const auto release = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  {
    SerialExecutor executor;
    executor.Run([release, ended] {
      release->get_future().wait();
      ended->set_value();
    });
    EXPECT_FALSE(executor.Stop(SerialExecutor::Pending::kFinish, milliseconds(1)));
  }

  release->set_value();

  EXPECT_EQ(ended->get_future().wait_for(hours(1)), std::future_status::ready);
}

TEST(SerialExecutorTest, WaitsLongerWhenAskedAgain) {
  SerialExecutor executor;
  std::promise<void> release;
  bool ended = false;
  executor.Run([&] {
    release.get_future().wait();
    ended = true;
  });
  ASSERT_FALSE(executor.Stop(SerialExecutor::Pending::kFinish, milliseconds(1)));

  release.set_value();

  EXPECT_TRUE(executor.Stop(SerialExecutor::Pending::kFinish, hours(1)));
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace switchyard
