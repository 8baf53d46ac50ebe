// Records the calls of a sink in order, so that a test can wait for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard::testing {

class SinkLog {
 public:
  void Add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  // True once `count` lines are there; false after 20 s.
  bool WaitFor(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return lines_.size() >= count; });
  }
  // True once the last line begins with `start`; false after 20 s.
  bool WaitForLast(const std::string& start) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return !lines_.empty() && lines_.back().rfind(start, 0) == 0; });
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// "code REASON", e.g. "UNAVAILABLE WORKER_LOST".
inline std::string Brief(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ", ReasonName(ReasonOf(status)));
}

}  // namespace switchyard::testing
