// A range of TCP ports, for firewalls that let only some through.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace switchyard {

// 0 to 0: any port that is free.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;  // inclusive
};

// Reads "FIRST-LAST", both from 1024 on. Empty text: any. nullopt: it is neither.
std::optional<PortRange> ParsePortRange(absl::string_view text);

}  // namespace switchyard
