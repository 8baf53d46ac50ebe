#include "core/base/amount_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace switchyard {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {
    {"B", 1}, {"KiB", 1024}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.}};

Unit UnitFor(std::int64_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && static_cast<double>(bytes) >= kUnits[unit + 1].bytes) {
    ++unit;
  }
  return kUnits[unit];
}

// Bytes are whole; everything else has one digit.
std::string In(std::int64_t bytes, const Unit& unit) {
  if (unit.bytes == 1) return absl::StrCat(bytes);
  // Cut and not rounded: a part must not look like the whole.
  return absl::StrFormat("%.1f", std::floor(static_cast<double>(bytes) / unit.bytes * 10) / 10);
}

}  // namespace

std::string CountText(std::int64_t count, absl::string_view one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

std::string ShareText(std::int64_t done_bytes, std::int64_t total_bytes) {
  const Unit unit = UnitFor(total_bytes);
  return absl::StrCat(In(done_bytes, unit), " of ", In(total_bytes, unit), " ", unit.name);
}

std::string RateText(std::int64_t bytes_per_second) {
  const Unit unit = UnitFor(bytes_per_second);
  return absl::StrCat(In(bytes_per_second, unit), " ", unit.name, "/s");
}

std::string TimeText(Duration time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::max(time, Duration::zero()));
  if (seconds < std::chrono::minutes(2)) return absl::StrCat(seconds.count(), " s");
  const auto minutes = std::chrono::ceil<std::chrono::minutes>(seconds).count();
  if (minutes < 60) return absl::StrCat(minutes, " min");
  return minutes % 60 == 0 ? absl::StrCat(minutes / 60, " h")
                           : absl::StrCat(minutes / 60, " h ", minutes % 60, " min");
}

}  // namespace switchyard
