// The sinks of open streams and watches, by id. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/mutex.h"

namespace switchyard {

// Each sink has a lock of its own, held while it is called, so that Remove can wait for a running
// call: afterwards the caller may destroy the sink. The lock is recursive, so that a sink may
// remove itself from within a call.
template <typename Id, typename Sink>
class SinkTable {
 public:
  // `sink` must stay valid until Remove or EndAll has returned.
  void Add(Id id, Sink* sink) {
    const MutexLock lock(mutex_);
    slots_[id] = std::make_shared<Slot>(sink);
  }
  // When it has returned, the sink is not called any more.
  void Remove(Id id) {
    std::shared_ptr<Slot> slot;
    {
      const MutexLock lock(mutex_);
      const auto it = slots_.find(id);
      if (it == slots_.end()) return;
      slot = std::move(it->second);
      slots_.erase(it);
    }
    // Not under mutex_: a slow sink must not hold up the others.
    const std::lock_guard lock(slot->mutex);
    slot->sink = nullptr;
  }
  // Calls `call(sink)` if `id` is in the table.
  template <typename Call>
  void Use(Id id, Call call) {
    std::shared_ptr<Slot> slot;
    {
      const MutexLock lock(mutex_);
      const auto it = slots_.find(id);
      if (it == slots_.end()) return;
      slot = it->second;
    }
    const std::lock_guard lock(slot->mutex);
    // Null: removed since the table was read.
    if (slot->sink != nullptr) call(*slot->sink);
  }
  // Calls each sink a last time and empties the table.
  template <typename Call>
  void EndAll(Call call) {
    std::vector<Id> ids;
    {
      const MutexLock lock(mutex_);
      for (const auto& [id, slot] : slots_) ids.push_back(id);
    }
    for (const Id id : ids) {
      Use(id, call);
      Remove(id);
    }
  }

 private:
  struct Slot {
    explicit Slot(Sink* s) : sink(s) {}
    std::recursive_mutex mutex;
    Sink* sink;
  };
  Mutex mutex_;
  std::map<Id, std::shared_ptr<Slot>> slots_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
