#include "core/base/port_range.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace switchyard {
namespace {

constexpr int kFirst = 1024;  // below, ports need privileges
constexpr int kLast = 65535;

}  // namespace

std::optional<PortRange> ParsePortRange(absl::string_view text) {
  if (text.empty()) return PortRange{};
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  int first = 0;
  int last = 0;
  if (!absl::SimpleAtoi(ends.first, &first) || !absl::SimpleAtoi(ends.second, &last) ||
      first < kFirst || last > kLast || first > last) {
    return std::nullopt;
  }
  return PortRange{static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
}

}  // namespace switchyard
