// How a fuzzer's input is read as a sequence of messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace switchyard::fuzz {

// One message: what to do with it, and its bytes.
struct Message {
  std::uint8_t what = 0;
  absl::string_view bytes;
};

// Takes messages {what u8, length u16 little-endian, bytes} from an input; the last may be cut.
// Bounded, so that one input cannot take long.
class Messages {
 public:
  explicit Messages(absl::string_view input) : rest_(input) {}

  bool Next(Message* out) {
    if (rest_.size() < 3 || taken_ == kMessagesMax) return false;
    ++taken_;
    out->what = static_cast<std::uint8_t>(rest_[0]);
    const std::size_t length =
        static_cast<std::uint8_t>(rest_[1]) + 256U * static_cast<std::uint8_t>(rest_[2]);
    rest_.remove_prefix(3);
    out->bytes = rest_.substr(0, length);
    rest_.remove_prefix(std::min(length, rest_.size()));
    return true;
  }

 private:
  static constexpr int kMessagesMax = 64;

  absl::string_view rest_;
  int taken_ = 0;
};

}  // namespace switchyard::fuzz
