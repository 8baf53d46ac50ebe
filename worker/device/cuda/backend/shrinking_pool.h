// Things that several threads use one at a time each, made when a thread finds none idle, and
// destroyed again where memory runs out.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/mutex.h"

namespace switchyard {

// Thread-safe.
template <typename Item>
class ShrinkingPool {
 public:
  // At most `most` items exist at a time.
  ShrinkingPool(int most, std::function<std::unique_ptr<Item>()> make)
      : most_(most), make_(std::move(make)) {}

  // Returns work(item), a StatusOr, of an idle or a new item; waits while as many are in use as
  // there may be. After kResourceExhausted (OUT_OF_MEMORY) an item is destroyed for good, so that
  // others have its memory, and the work is done again; the last item stays, and then the error is
  // the answer.
  template <typename Work>
  auto Use(const Work& work) {
    for (;;) {
      Taken taken = Take();
      auto result = work(*taken.item);
      const bool again = absl::IsResourceExhausted(result.status()) && MakeRoom(&taken);
      if (taken.item != nullptr) Give(std::move(taken.item));
      if (!again) return result;
    }
  }

 private:
  struct Taken {
    std::unique_ptr<Item> item;
    int dropped = 0;  // dropped_ then
  };

  Taken Take() {
    const MutexLock lock(mutex_);
    while (idle_.empty() && items_ == most_ - dropped_) changed_.Wait(mutex_);
    if (idle_.empty()) {
      ++items_;
      return {make_(), dropped_};
    }
    Taken taken{std::move(idle_.back()), dropped_};
    idle_.pop_back();
    return taken;
  }
  void Give(std::unique_ptr<Item> item) {
    {
      const MutexLock lock(mutex_);
      idle_.push_back(std::move(item));
    }
    changed_.NotifyOne();
  }
  // False if no room was made since the item was taken. With the lock held, so that whoever sees
  // the number has the memory too.
  bool MakeRoom(Taken* taken) {
    const MutexLock lock(mutex_);
    if (items_ == 1) return dropped_ > taken->dropped;
    taken->item.reset();
    --items_;
    ++dropped_;
    return true;
  }

  const int most_;
  const std::function<std::unique_ptr<Item>()> make_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Item>> idle_ SY_GUARDED_BY(mutex_);
  int items_ SY_GUARDED_BY(mutex_) = 0;
  int dropped_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
