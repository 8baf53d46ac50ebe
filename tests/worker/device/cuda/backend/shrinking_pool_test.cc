#include "worker/device/cuda/backend/shrinking_pool.h"

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

// Memory that is counted and not there.
class Memory {
 public:
  explicit Memory(int units) : free_(units) {}
  bool Take(int units) {
    int free = free_.load();
    while (free >= units) {
      if (free_.compare_exchange_weak(free, free - units)) return true;
    }
    return false;
  }
  void Give(int units) { free_ += units; }
  [[nodiscard]] int free() const { return free_.load(); }

 private:
  std::atomic<int> free_;
};

// As a packer: takes scratch with its first piece of work, and keeps it.
class Packer {
 public:
  static constexpr int kScratch = 5;

  explicit Packer(Memory* memory) : memory_(memory) {}
  ~Packer() {
    if (scratch_) memory_->Give(kScratch);
  }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Takes `units`, which stay.
  absl::StatusOr<int> Pack(int units) {
    EXPECT_FALSE(busy_.exchange(true)) << "by two threads at a time";
    const bool packed = (scratch_ || (scratch_ = memory_->Take(kScratch))) && memory_->Take(units);
    busy_ = false;
    if (!packed) return absl::ResourceExhaustedError("full");
    return units;
  }

 private:
  Memory* const memory_;
  bool scratch_ = false;
  std::atomic<bool> busy_{false};
};

struct Pool {
  Pool(int most, int units)
      : memory(units), pool(most, [this] {
          ++made;
          return std::make_unique<Packer>(&memory);
        }) {}
  absl::StatusOr<int> Pack(int units) {
    return pool.Use([&](Packer& packer) { return packer.Pack(units); });
  }
  // Each of `threads` packs `each` times; the number of failures.
  int PackInThreads(int threads, int each, int units) {
    std::atomic<int> failed{0};
    std::barrier together(threads);
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&] {
        together.arrive_and_wait();
        for (int i = 0; i < each; ++i) failed += Pack(units).ok() ? 0 : 1;
      });
    }
    all.clear();
    return failed;
  }

  Memory memory;
  std::atomic<int> made{0};
  ShrinkingPool<Packer> pool;
};

TEST(ShrinkingPoolTest, OneThreadNeedsOneItem) {
  Pool pool(4, 1000);

  EXPECT_EQ(pool.PackInThreads(1, 50, 1), 0);

  EXPECT_EQ(pool.made, 1);
}

TEST(ShrinkingPoolTest, ThereAreNeverMoreThanMayBe) {
  Pool pool(3, 1000);

  EXPECT_EQ(pool.PackInThreads(16, 20, 1), 0);

  EXPECT_LE(pool.made, 3);
  EXPECT_EQ(pool.memory.free(), 1000 - 16 * 20 - pool.made * Packer::kScratch);
}

// Whatever fits beside one item is packed, however many threads compete.
TEST(ShrinkingPoolTest, AFullDeviceIsFilledToTheLastUnitByOneItem) {
  for (int round = 0; round < 200; ++round) {
    Pool pool(4, 8 * 4 * 3 + Packer::kScratch);

    EXPECT_EQ(pool.PackInThreads(8, 4, 3), 0);

    EXPECT_EQ(pool.memory.free(), 0);
  }
}

TEST(ShrinkingPoolTest, WhatNeverFitsIsAnErrorAndTheNextOneIsPacked) {
  Pool pool(4, 50);
  EXPECT_EQ(pool.PackInThreads(4, 1, 1), 0);

  EXPECT_TRUE(absl::IsResourceExhausted(pool.Pack(1000).status()));

  EXPECT_EQ(pool.PackInThreads(4, 10, 1), 0);
}

// The second of them is the last item then, but has not yet tried with the memory of the first.
TEST(ShrinkingPoolTest, TwoThatFailTogetherBothTryAgain) {
  Pool pool(2, 0);
  std::barrier together(2);
  std::atomic<int> packed{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        int tries = 0;
        const absl::StatusOr<int> answer = pool.pool.Use([&](Packer&) -> absl::StatusOr<int> {
          if (tries++ > 0) return 1;
          together.arrive_and_wait();
          return absl::ResourceExhaustedError("full");
        });
        packed += answer.ok() ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(packed, 2);
}

TEST(ShrinkingPoolTest, AnotherErrorIsTheAnswer) {
  Pool pool(4, 50);
  int calls = 0;

  const absl::StatusOr<int> answer = pool.pool.Use([&](Packer&) -> absl::StatusOr<int> {
    ++calls;
    return absl::UnavailableError("lost");
  });

  EXPECT_TRUE(absl::IsUnavailable(answer.status()));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace switchyard
