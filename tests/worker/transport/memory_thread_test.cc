#include "worker/transport/memory_thread.h"

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr auto kSoon = std::chrono::seconds(10);

// Says on which thread it was destroyed.
std::shared_ptr<void> Tracer(std::promise<std::thread::id>* destroyed) {
  return {nullptr, [destroyed](void*) { destroyed->set_value(std::this_thread::get_id()); }};
}

TEST(MemoryThreadTest, RunsInOrderAndDestroysTheWorkThere) {
  MemoryThread thread;
  std::vector<int> order;
  std::promise<std::thread::id> ran;
  std::promise<std::thread::id> destroyed;
  thread.Run([&] { order.push_back(1); });
  thread.Run([&, tracer = Tracer(&destroyed)] {
    order.push_back(2);
    ran.set_value(std::this_thread::get_id());
  });

  auto where = ran.get_future();
  auto freed = destroyed.get_future();
  ASSERT_EQ(where.wait_for(kSoon), std::future_status::ready);
  ASSERT_EQ(freed.wait_for(kSoon), std::future_status::ready);
  const std::thread::id id = where.get();
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_EQ(freed.get(), id);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(MemoryThreadTest, StopEndsWhatRunsAndDropsTheRest) {
  MemoryThread thread;
  std::promise<void> running;
  std::promise<void> go_on;
  bool ended = false;
  bool dropped_ran = false;
  std::promise<std::thread::id> destroyed;
  thread.Run([&] {
    running.set_value();
    go_on.get_future().wait();
    ended = true;
  });
  thread.Run([&, tracer = Tracer(&destroyed)] { dropped_ran = true; });
  running.get_future().wait();
  std::jthread stops([&] { thread.Stop(); });
  // Until Stop has begun: from then on work is destroyed in the call.
  for (bool stopping = false; !stopping; std::this_thread::yield()) {
    const auto given = std::make_shared<int>();
    thread.Run([given] {});
    stopping = given.use_count() == 1;
  }
  go_on.set_value();
  stops.join();

  EXPECT_TRUE(ended);
  EXPECT_FALSE(dropped_ran);
  EXPECT_EQ(destroyed.get_future().wait_for(kSoon), std::future_status::ready);
  std::promise<std::thread::id> late;
  thread.Run([tracer = Tracer(&late)] {});
  EXPECT_EQ(late.get_future().get(), std::this_thread::get_id()) << "nothing is left that would";
}

}  // namespace
}  // namespace switchyard
