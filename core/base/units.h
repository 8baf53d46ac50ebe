// Bytes and times as people write them in flags and files: "64GiB", "500ms". Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/clock.h"

namespace switchyard {

// Examples for error texts and help.
inline constexpr char kBytesExamples[] = "64GiB, 64GB, 1.5MiB, 65536";
inline constexpr char kDurationExamples[] = "20s, 1.5s, 300ms, 10m, 1h";

// Reads a number with a unit of bytes: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB
// (powers of 1024), each also without the B, in upper or lower case; or a plain number. nullopt for
// anything else, for a negative number, a part of a byte, and more than 2^63 - 1 bytes.
std::optional<std::int64_t> ParseBytes(absl::string_view text);
// The shortest text that ParseBytes reads as `bytes`: "64GiB", "500MB", "65537".
std::string BytesText(std::int64_t bytes);

// Reads one or more numbers, each with a unit (h, m, s, ms, us): "1.5s", "1h30m"; or "0". nullopt
// for anything else, for a number without a unit, a negative one, and more than 290 years.
std::optional<Duration> ParseDuration(absl::string_view text);
// The text that ParseDuration reads as `time` to the microsecond, in the largest unit in which it
// is a whole number: "90s", "1500ms".
std::string DurationText(Duration time);

}  // namespace switchyard
