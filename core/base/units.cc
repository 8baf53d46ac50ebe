#include "core/base/units.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace switchyard {
namespace {

struct Unit {
  absl::string_view name;
  std::int64_t size;
};

// From the largest, so that the first that divides an amount gives the shortest text. Binary before
// decimal: memory comes in powers of two.
constexpr std::array<Unit, 8> kBytes{{{"TiB", std::int64_t{1} << 40},
                                      {"TB", 1'000'000'000'000},
                                      {"GiB", std::int64_t{1} << 30},
                                      {"GB", 1'000'000'000},
                                      {"MiB", std::int64_t{1} << 20},
                                      {"MB", 1'000'000},
                                      {"KiB", std::int64_t{1} << 10},
                                      {"kB", 1'000}}};
// In microseconds.
constexpr std::array<Unit, 5> kTimes{
    {{"h", 3'600'000'000}, {"m", 60'000'000}, {"s", 1'000'000}, {"ms", 1'000}, {"us", 1}}};

// Takes the decimal number at the front of `text`, which may have a point. SimpleAtod would also
// read signs, exponents and "inf".
std::optional<double> TakeNumber(absl::string_view* text) {
  const std::size_t end = text->find_first_not_of("0123456789.");
  const absl::string_view digits = text->substr(0, end);
  double number = 0;
  if (digits.empty() || digits.front() == '.' || digits.back() == '.' ||
      !absl::SimpleAtod(digits, &number)) {
    return std::nullopt;
  }
  text->remove_prefix(digits.size());
  return number;
}

std::int64_t BytesOf(absl::string_view unit) {
  if (unit.empty() || absl::EqualsIgnoreCase(unit, "b")) return 1;
  for (const Unit& each : kBytes) {
    const absl::string_view short_name = each.name.substr(0, each.name.size() - 1);
    if (absl::EqualsIgnoreCase(unit, each.name) || absl::EqualsIgnoreCase(unit, short_name)) {
      return each.size;
    }
  }
  return 0;
}

}  // namespace

std::optional<std::int64_t> ParseBytes(absl::string_view text) {
  const std::string digits(text.substr(0, text.find_first_not_of("0123456789")));
  std::int64_t whole = 0;
  const std::optional<double> number = TakeNumber(&text);
  const std::int64_t unit = BytesOf(text);
  if (!number || unit == 0) return std::nullopt;
  // A whole number does not pass through a double, which is exact up to 2^53 only.
  if (*number == std::floor(*number) && absl::SimpleAtoi(digits, &whole)) {
    if (whole > std::numeric_limits<std::int64_t>::max() / unit) return std::nullopt;
    return whole * unit;
  }
  const double bytes = *number * static_cast<double>(unit);
  constexpr double kEnd = 9'223'372'036'854'775'808.0;  // 2^63
  if (bytes >= kEnd || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::string BytesText(std::int64_t bytes) {
  for (const Unit& unit : kBytes) {
    if (bytes != 0 && bytes % unit.size == 0) return absl::StrCat(bytes / unit.size, unit.name);
  }
  return absl::StrCat(bytes);
}

std::optional<Duration> ParseDuration(absl::string_view text) {
  if (text == "0") return Duration{};
  constexpr double kMicrosMax = 9e15;  // just below the range of the 64-bit nanoseconds in Duration
  double micros = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const std::optional<double> number = TakeNumber(&text);
    const absl::string_view name = text.substr(0, text.find_first_of("0123456789."));
    text.remove_prefix(name.size());
    std::int64_t size = 0;
    for (const Unit& unit : kTimes) size = unit.name == name ? unit.size : size;
    if (!number || size == 0) return std::nullopt;
    micros += *number * static_cast<double>(size);
    if (micros > kMicrosMax) return std::nullopt;
  }
  // The part below a microsecond is rounded, because 0.3 us is not exact in binary.
  const double whole = std::floor(micros);
  return Duration(static_cast<std::int64_t>(whole) * 1000 + std::lround((micros - whole) * 1e3));
}

std::string DurationText(Duration time) {
  const std::int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  for (const Unit& unit : kTimes) {
    if (micros != 0 && micros % unit.size == 0) return absl::StrCat(micros / unit.size, unit.name);
  }
  return "0s";
}

}  // namespace switchyard
