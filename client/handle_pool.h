// Handles given to C callers, who may use one again after its end: ended ones are kept, so that
// such a call finds an ended handle and not freed memory.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace switchyard {

// Owns its handles. Not thread-safe.
template <typename Handle>
class HandlePool {
 public:
  // An ended handle serves again only when this many have ended after it.
  static constexpr std::size_t kEndedKept = 1024;

  // A handle that nobody holds. Allocates only while fewer than kEndedKept have ended.
  Handle* Take() {
    if (ended_.size() > kEndedKept) {
      Handle* const oldest = ended_.front();
      ended_.pop_front();
      return oldest;
    }
    return all_.emplace_back(std::make_unique<Handle>()).get();
  }
  // `handle` came from Take and is ended once.
  void End(Handle* handle) { ended_.push_back(handle); }

 private:
  std::vector<std::unique_ptr<Handle>> all_;
  std::deque<Handle*> ended_;  // oldest first
};

}  // namespace switchyard
