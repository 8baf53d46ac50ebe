// Bytes and times for people, in the units that fit their size: "1.2 of 1.7 GiB", "3 min". Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/clock.h"

namespace switchyard {

// "1 worker", "2 workers". `one` is a word whose plural ends with s.
std::string CountText(std::int64_t count, absl::string_view one);
// "1.2 of 1.7 GiB": both in the unit of `total`.
std::string ShareText(std::int64_t done_bytes, std::int64_t total_bytes);
// "412.0 MiB/s".
std::string RateText(std::int64_t bytes_per_second);
// "7 s", "3 min", "2 h 5 min": rounded up, so that it is 0 only for zero.
std::string TimeText(Duration time);

}  // namespace switchyard
