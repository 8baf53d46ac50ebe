// One thread that runs tasks in order: for work that blocks (disk, hashing) beside a thread that
// must not. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"

namespace switchyard {

class SerialExecutor {
 public:
  SerialExecutor();
  // As Stop(kFinish, no deadline), unless it was stopped before: then what still runs is left to
  // itself.
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // False after Stop: the task will not run. The number of waiting tasks is the caller's to bound.
  bool Run(std::function<void()> task);

  enum class Pending { kFinish, kDrop };
  // Ends the thread after the running task and, with kFinish, those that wait. False when a task
  // still runs after `deadline`: it must own what it touches. May be called again, to wait longer.
  bool Stop(Pending pending, Duration deadline);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard
