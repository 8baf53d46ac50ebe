// The floor of everything that moves bytes: memcpy of as many, between buffers that take turns as
// slots do.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace switchyard::bench {

class CopyFloor {
 public:
  explicit CopyFloor(std::size_t bytes)
      : from_(bytes * kTurns), to_(bytes * kTurns), bytes_(bytes) {
    std::memset(from_.data(), 1, from_.size());
    std::memset(to_.data(), 2, to_.size());
  }
  void Copy() {
    const std::size_t at = turn_++ % kTurns * bytes_;
    std::memcpy(to_.data() + at, from_.data() + at, bytes_);
  }

 private:
  static constexpr std::size_t kTurns = 4;
  std::vector<char> from_;
  std::vector<char> to_;
  std::size_t bytes_;
  std::size_t turn_ = 0;
};

}  // namespace switchyard::bench
