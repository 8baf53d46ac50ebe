// Waits a bounded time for work that itself may not end: a name server, or a disk, that is silent.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard::ctl {

// The result of `work`, which runs on a thread of its own; nullopt if it has none after `most`. The
// thread is left behind then, because a system call that hangs cannot be ended: `work` owns all
// that it uses.
template <typename T>
std::optional<T> Within(Duration most, std::function<T()> work) {
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<T> result SY_GUARDED_BY(mutex);
  };
  const auto state = std::make_shared<State>();
  const TimePoint end = std::chrono::steady_clock::now() + most;
  std::thread([state, work = std::move(work)] {
    T made = work();
    const MutexLock lock(state->mutex);
    state->result = std::move(made);
    state->changed.NotifyAll();
  }).detach();
  const MutexLock lock(state->mutex);
  while (!state->result.has_value() && state->changed.WaitUntil(state->mutex, end)) {
  }
  return std::move(state->result);
}

// The time that a run may take as a whole.
class Budget {
 public:
  explicit Budget(Duration all) : end_(std::chrono::steady_clock::now() + all) {}
  // The time for a step that may take `most`; 0 or less: none is left.
  [[nodiscard]] Duration Left(Duration most) const {
    return std::min<Duration>(most, end_ - std::chrono::steady_clock::now());
  }
  [[nodiscard]] bool over() const { return Left(Duration::max()) <= Duration::zero(); }

 private:
  TimePoint end_;
};

}  // namespace switchyard::ctl
