// Handles for C callers, which may use a handle after its end: ended handles are kept, so that such
// a call finds an ended handle instead of freed memory. The memory is bounded by the handles in use
// plus kEndedKept.
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
  // An ended handle is reused only after this many others have ended.
  static constexpr std::size_t kEndedKept = 1024;

  // A handle that no caller holds. Allocates only while fewer than kEndedKept have ended.
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
