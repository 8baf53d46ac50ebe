// Callbacks of requests that have no answer yet, by request. Thread-safe.
#pragma once

#include <map>
#include <utility>

#include "absl/status/status.h"

#include "core/base/mutex.h"

namespace switchyard {

// Each callback is called exactly once, outside the lock, so that it may make another request. The
// second answer to a request, as after AnswerAll, is dropped.
template <typename Id, typename Callback>
class CallbackTable {
 public:
  // Add it before the request can be answered.
  void Add(Id id, Callback callback) {
    const MutexLock lock(mutex_);
    waiting_[id] = std::move(callback);
  }
  // Calls the callback of `id` with `result` and removes it.
  template <typename Result>
  void Answer(Id id, Result&& result) {
    if (Callback callback = Take(id)) callback(std::forward<Result>(result));
  }
  // Answers everything with `status`.
  void AnswerAll(const absl::Status& status) {
    std::map<Id, Callback> all;
    {
      const MutexLock lock(mutex_);
      all.swap(waiting_);
    }
    for (auto& [id, callback] : all) callback(status);
  }

 private:
  // Empty when it was taken before.
  // Removes and returns the callback.
  Callback Take(Id id) {
    const MutexLock lock(mutex_);
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return nullptr;
    Callback callback = std::move(it->second);
    waiting_.erase(it);
    return callback;
  }

  Mutex mutex_;
  std::map<Id, Callback> waiting_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
