// Bounds the lines that a library writes about what strangers do: a flood of connections that fail
// must not be a flood of lines.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

// Lets through kLinesInPeriod lines of each place in the source in each period, and counts the
// others. Places whose hashes agree share their lines. Thread-safe.
class LineLimit {
 public:
  static constexpr int kLinesInPeriod = 3;
  static constexpr Duration kPeriod = std::chrono::seconds(10);

  // How many lines of this place were left out since the last one that was written, if this one may
  // be written at `now`; none if it is left out.
  std::optional<std::uint64_t> Admit(absl::string_view file, int line, TimePoint now);

 private:
  struct Place {
    TimePoint since{};  // when its period began
    int written = 0;    // in that period
    std::uint64_t left_out = 0;
  };
  static constexpr std::size_t kPlaces = 64;  // gRPC writes errors in about as many that occur

  Mutex mutex_;
  std::array<Place, kPlaces> places_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
