// One thread that runs tasks in order. It takes work that blocks (disk, hashing) off a thread that
// must not block. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"

namespace switchyard {

class SerialExecutor {
 public:
  SerialExecutor();
  // Like Stop(kFinish) without a deadline. If Stop was called before and a task still runs, that
  // task goes on in its own thread.
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // False after Stop: the task will not run. The queue is unbounded; the caller limits it.
  bool Run(std::function<void()> task);

  enum class Pending { kFinish, kDrop };
  // Ends the thread after the running task and, with kFinish, after those that wait. False when a
  // task still runs after `deadline`: it must own everything it uses. May be called again, to wait
  // longer.
  bool Stop(Pending pending, Duration deadline);

 private:
  // Owned by the executor and its thread together.
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard
