#include "core/ids.h"

#include "absl/strings/str_format.h"

namespace switchyard::internal {

std::string RandomIdToHex(std::uint64_t high, std::uint64_t low) {
  return absl::StrFormat("%016x%016x", high, low);
}

namespace {
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

bool RandomIdFromHex(absl::string_view hex, std::uint64_t* high, std::uint64_t* low) {
  if (hex.size() != 32) return false;
  std::uint64_t words[2] = {0, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    const int digit = HexDigit(hex[i]);
    if (digit < 0) return false;
    words[i / 16] = (words[i / 16] << 4) | static_cast<std::uint64_t>(digit);
  }
  // Written only on success, so that a caller's id is never half replaced.
  *high = words[0];
  *low = words[1];
  return true;
}

}  // namespace switchyard::internal
